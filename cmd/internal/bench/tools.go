package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// toolSizes are how much is measured with.
type toolSizes struct {
	files   int // that are searched
	large   int // bytes of the file that is read and edited
	repeats int // readings and edits
	rg      string
	grep    string
}

func benchTools(ctx context.Context, o Options) ([]Figure, error) {
	sizes := toolSizes{files: 100_000, large: 5<<20 - 1000, repeats: 5}
	for name, into := range map[string]*string{"rg": &sizes.rg, "grep": &sizes.grep} {
		path, err := exec.LookPath(name)
		if err != nil {
			// Not an error: the tools themselves can still be measured.
			fmt.Fprintf(o.Progress, "the program %s is not installed, so nothing is measured against it\n", name)
			continue
		}
		*into = path
	}

	return measureTools(ctx, o.Progress, o.Passes, sizes)
}

// measureTools alternates between the file tools and the programs of the same purpose, in the
// same files, which are in the system's cache after the first pass.
func measureTools(ctx context.Context, progress io.Writer, passes int, sizes toolSizes) ([]Figure, error) {
	dir, err := os.MkdirTemp("", "rouse-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	fmt.Fprintf(progress, "writing %s files\n", thousands(sizes.files))
	b, err := newToolBench(ctx, dir, sizes)
	if err != nil {
		return nil, err
	}
	defer b.ledger.Close()

	defer b.confine.close()

	for pass := range passes {
		fmt.Fprintf(progress, "pass %d of %d\n", pass+1, passes)
		if err := b.measure(ctx); err != nil {
			return nil, err
		}
	}

	return b.figures(), nil
}

// toolBench is a run with its tools, and what each pass found.
type toolBench struct {
	sizes  toolSizes
	dir    string // the workdir
	ledger *ledger.Ledger
	tools  *tool.Registry
	in     tool.Invocation
	calls  int

	confine *confineBench

	text, rgText, grepText    []float64 // s
	words, rgWords, grepWords []float64 // s, by an expression
	names, rgNames            []float64 // s
	read, bareRead            []float64 // ms
	edit, bareEdit            []float64 // ms
}

func newToolBench(ctx context.Context, dir string, sizes toolSizes) (*toolBench, error) {
	b := &toolBench{sizes: sizes, dir: filepath.Join(dir, "work")}
	if err := writeSearched(b.dir, sizes); err != nil {
		return nil, err
	}

	var err error
	if b.confine, err = newConfineBench(ctx); err != nil {
		return nil, err
	}
	if b.ledger, err = ledger.Open(ctx, ledger.Options{Path: filepath.Join(dir, "ledger.db"), Blobs: filepath.Join(dir, "blobs")}); err != nil {
		return nil, err
	}

	accepted, err := b.ledger.Enqueue(ctx, ledger.Request{Agent: "bench", Trigger: domain.TriggerManual})
	if err != nil {
		return nil, err
	}

	_, a, err := b.ledger.StartAttempt(ctx, accepted[0].Run)
	if err != nil {
		return nil, err
	}

	b.in = tool.Invocation{Run: a.Run, Attempt: a.Number, Agent: "bench"}
	roots, err := tool.NewRoots(b.dir, nil)
	if err != nil {
		return nil, err
	}

	tools, err := file.Tools(file.Options{Roots: roots, Log: b.ledger, Allow: []string{"search"}})
	if err != nil {
		return nil, err
	}

	b.tools, err = tool.NewRegistry(tools...)
	return b, err
}

// writeSearched makes source files of some kilobytes, a hundred in a folder, and a large one.
func writeSearched(dir string, sizes toolSizes) error {
	// A fixed seed, so that all machines and all passes search the same text.
	r := rand.New(rand.NewPCG(7, 7))
	words := strings.Fields("the of and func return error string int err nil value context file path name for range if else package import type struct interface map slice result config option handler server client request response")
	var text strings.Builder
	for i := range sizes.files {
		folder := filepath.Join(dir, fmt.Sprintf("m%02d", i/10_000), fmt.Sprintf("p%03d", i/100%100))
		if i%100 == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}

		text.Reset()
		for line := range 20 + r.IntN(60) {
			for range 3 + r.IntN(8) {
				text.WriteString(words[r.IntN(len(words))] + " ")
			}
			if line == 10 && i%5_000 == 0 {
				text.WriteString("findTheNeedle42(here)")
			}
			text.WriteByte('\n')
		}

		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("f%05d.go", i)), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}

	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "large.txt"), largeText(sizes.large), 0o644))
}

func largeText(size int) []byte {
	var text strings.Builder
	for i := 0; text.Len() < size; i++ {
		fmt.Fprintf(&text, "line %d of a file that is as large as the file tools take\n", i)
	}
	return []byte(text.String()[:size])
}

// call calls a tool, and gives how long it took, in seconds.
func (b *toolBench) call(ctx context.Context, name string, args map[string]any, into any) (float64, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return 0, err
	}

	b.calls++
	// Each call has its own key, as in a run.
	b.in.Key = fmt.Sprint(b.calls)
	begin := time.Now()
	e, err := b.tools.Call(ctx, b.in, name, raw)
	took := time.Since(begin).Seconds()
	if err != nil {
		return 0, err
	}
	if !e.OK {
		return 0, fmt.Errorf("%s: %s", name, e.Message)
	}

	return took, json.Unmarshal(e.Result, into)
}

// runProgram runs a program that prints lines, and gives how long it took and how many there were.
func runProgram(ctx context.Context, dir, path string, args ...string) (took float64, lines int, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	begin := time.Now()
	out, err := cmd.Output()
	took = time.Since(begin).Seconds()
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return took, strings.Count(string(out), "\n"), nil
}

func (b *toolBench) measure(ctx context.Context) error {
	for _, m := range []struct {
		name   string
		args   map[string]any
		key    string
		into   *[]float64
		others []other
	}{
		{"file_search", map[string]any{"pattern": "findtheneedle42"}, "total_matches", &b.text, []other{
			{b.sizes.rg, []string{"--no-config", "-n", "-i", "-F", "findtheneedle42", "."}, &b.rgText},
			{b.sizes.grep, []string{"-r", "-n", "-i", "-F", "findtheneedle42", "."}, &b.grepText}}},
		{"search", map[string]any{"pattern": `\w+Needle\d+\(here\)`, "case_sensitive": true}, "matches", &b.words, []other{
			{b.sizes.rg, []string{"--no-config", "-n", `\w+Needle\d+\(here\)`, "."}, &b.rgWords},
			{b.sizes.grep, []string{"-r", "-n", "-P", `\w+Needle\d+\(here\)`, "."}, &b.grepWords}}},
		{"file_search", map[string]any{"pattern": "f*99.go", "target": "files"}, "total_matches", &b.names, []other{
			{b.sizes.rg, []string{"--no-config", "--files", "-g", "f*99.go", "."}, &b.rgNames}}},
	} {
		var found map[string]any
		took, err := b.call(ctx, m.name, m.args, &found)
		if err != nil {
			return err
		}

		*m.into = append(*m.into, took)
		for _, o := range m.others {
			if o.path == "" {
				continue
			}

			took, lines, err := runProgram(ctx, b.dir, o.path, o.args...)
			if err != nil {
				return err
			}
			// Only searches with the same result can be compared.
			if float64(lines) != found[m.key] {
				return fmt.Errorf("%s found %v of %v, and %s %d", m.name, found[m.key], m.args["pattern"], filepath.Base(o.path), lines)
			}

			*o.into = append(*o.into, took)
		}
	}

	if err := b.measureLarge(ctx); err != nil {
		return err
	}

	return b.confine.measure(ctx, filepath.Join(b.dir, ".."), 4*b.sizes.repeats)
}

// other is a program that does the same.
type other struct {
	path string
	args []string
	into *[]float64
}

// measureLarge reads and edits the large file, beside reading it, and writing it with fsync.
func (b *toolBench) measureLarge(ctx context.Context) error {
	path := filepath.Join(b.dir, "large.txt")
	for range b.sizes.repeats {
		begin := time.Now()
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		b.bareRead = append(b.bareRead, 1000*time.Since(begin).Seconds())
		var res any
		took, err := b.call(ctx, "file_read", map[string]any{"path": "large.txt", "start_line": 50_000 * len(text) / (5 << 20)}, &res)
		if err != nil {
			return err
		}

		b.read = append(b.read, 1000*took)
		begin = time.Now()
		if err := writeSynced(path+".new", text); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}

		b.bareEdit = append(b.bareEdit, 1000*time.Since(begin).Seconds())
		// There and back, so that the file stays as large as it is.
		from, to := "line 1000 of a file", "line 1000 of one file"
		if !strings.Contains(string(text), from) {
			from, to = to, from
		}
		if took, err = b.call(ctx, "file_edit", map[string]any{"path": "large.txt", "old_string": from, "new_string": to}, &res); err != nil {
			return err
		}

		b.edit = append(b.edit, 1000*took)
	}

	return nil
}

func writeSynced(path string, text []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func (b *toolBench) figures() []Figure {
	files := thousands(b.sizes.files) + " files"
	var out []Figure
	add := func(name string, values []float64, baseline string, others []float64, most float64) {
		if len(others) > 0 {
			out = append(out, against(name, "s", baseline, most, values, others))
		}
	}

	add("text in "+files, b.text, "ripgrep", b.rgText, 2)
	add("text in "+files+", grep", b.text, "grep", b.grepText, 1)
	add("expression in "+files, b.words, "ripgrep", b.rgWords, 2)
	add("expression in "+files+", grep", b.words, "grep", b.grepWords, 1)
	add("names of "+files, b.names, "ripgrep", b.rgNames, 2)
	if len(out) == 0 {
		out = append(out, Figure{Name: "text in " + files, Value: median(b.text), Unit: "s", Met: true})
	}

	size := fmt.Sprintf("%.1f MiB", float64(b.sizes.large)/(1<<20))
	out = append(out, compared("a page of a file of "+size, "ms, of reading it", b.read, b.bareRead),
		compared("one edit of a file of "+size+", with undo", "ms, of writing it with fsync", b.edit, b.bareEdit))
	return append(out, b.confine.figures()...)
}
