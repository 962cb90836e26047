package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"rouse/agent/sandbox"
	"rouse/agentdb/tabular"
)

// Bounds of one preview.
const (
	lanes     = 2 // at the same time
	maxTime   = 10 * time.Second
	maxMemory = 512 << 20 // bytes
	maxRest   = 4 << 10   // bytes
	maxAnswer = 48 << 20  // bytes: a picture of 20 MiB in base64, and more
)

// Viewer starts the processes that read files, a few at a time. It is safe for concurrent use.
type Viewer struct {
	box   *sandbox.Sandbox
	lanes chan struct{}
	time  time.Duration // for one file
}

// New gives a viewer whose processes a sandbox confines. The program that it is part of must call
// [sandbox.Child] and [Child] first of all.
func New(box *sandbox.Sandbox) *Viewer { return &Viewer{box, make(chan struct{}, lanes), maxTime} }

// Fault is what is wrong with a file, in words that follow its name.
type Fault struct{ Message string }

func (f *Fault) Error() string { return f.Message }

func fault(format string, args ...any) error { return &Fault{fmt.Sprintf(format, args...)} }

// PDF are the words of some pages.
type PDF struct {
	Pages       int // of the file
	First, Last int // shown; behind the last page nothing is
	Text        string
	Cut         bool   // of the last page there is more
	Rest        string // the beginning of what was cut off, in which a secret may end that begins before it
	Unread      []int  // pages of these that could not be read
}

// PDF reads the pages from one on, counted from 1, as many as fit into so many characters.
func (v *Viewer) PDF(ctx context.Context, content io.Reader, from, chars int) (out PDF, err error) {
	err = v.show(ctx, request{Kind: kindPDF, From: from, Chars: chars}, content, &out)
	return out, err
}

// XLSX is [tabular.PreviewXLSX].
func (v *Viewer) XLSX(ctx context.Context, content io.Reader, sheet string, rows, columns int) (out tabular.SheetPreview, err error) {
	err = v.show(ctx, request{Kind: kindXLSX, Sheet: sheet, Rows: rows, Columns: columns}, content, &out)
	return out, err
}

// PNG makes a PNG picture of a BMP one.
func (v *Viewer) PNG(ctx context.Context, bmp io.Reader) (out []byte, err error) {
	err = v.show(ctx, request{Kind: kindBMP}, bmp, &out)
	return out, err
}

// show has a file read. An error that is no *Fault is not the file's.
func (v *Viewer) show(ctx context.Context, r request, content io.Reader, into any) error {
	select {
	case v.lanes <- struct{}{}:
		defer func() { <-v.lanes }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	var text answerText
	res, err := v.box.Run(ctx, sandbox.Command{
		Self: true, Argv: []string{"rouse", childName}, Dir: rootFolder(), Wall: v.time,
		// No weaker tier is refused: what reads is bounded wherever it is, and can be stopped but not taken over.
		MinTier: sandbox.TierD, Limits: sandbox.Limits{Memory: maxMemory, Processes: 8, OpenFiles: 32, FileSize: 1},
		Env:   []string{"GOMAXPROCS=2", "GOTRACEBACK=none", "GORACE=" + os.Getenv("GORACE")}, // the daemon's own holds secrets
		Stdin: r.with(content), Stdout: &text,
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("a file is read by a second process of rouse, and that does not start: %w", err)
	case res.KilledBy == sandbox.KilledByWall:
		return fault("cannot be read within %s; it is damaged, or made to keep its readers busy", v.time)
	}

	var a answer
	if json.Unmarshal(text.held, &a) != nil {
		return fault("is damaged, or is made to use up more than %d MiB of memory: its reader ended (exit code %d)", maxMemory>>20, res.Exit)
	}
	if a.Fault != "" {
		return &Fault{a.Fault}
	}

	return json.Unmarshal(a.Result, into)
}

// answerText is what a child answers. One that answers more than any preview holds has its answer cut off, which is
// no JSON then.
type answerText struct{ held []byte }

// Write implements io.Writer.
func (t *answerText) Write(p []byte) (int, error) {
	t.held = append(t.held, p[:min(len(p), maxAnswer-len(t.held))]...)
	return len(p), nil
}

// rootFolder is a folder that is there on every system, and in every sandbox.
func rootFolder() string {
	if runtime.GOOS == "windows" {
		return os.TempDir()
	}
	return "/"
}
