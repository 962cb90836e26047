package example

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/cmd/internal/cmdtest"
	"rouse/cmd/internal/endtoend"
)

// docPort is where the model server of docs/start/quickstart.md listens; the test takes a port that is free.
const docPort = "127.0.0.1:8080"

// walk plays a page of commands. Blocks of yaml that begin with "# FILE" are written to that file. Blocks of sh
// hold commands after "$ ", and below each the lines that its output has, in that order and among others; … stands
// for any text, and any space for any other. "(exit N)" is the code that a command ends with, 0 without it.
type walk struct {
	t       *testing.T
	dir     string // of the next command
	address string // in place of docPort
	daemon  *endtoend.Program
}

// TestWalkthrough plays docs/start/quickstart.md as a stranger who types it: what it says is what they see.
func TestWalkthrough(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("the commands of the page are those of a Unix shell")
	}

	page, err := os.ReadFile("../../../../docs/start/quickstart.md")
	if err != nil {
		t.Fatal(err)
	}

	w := &walk{t: t, dir: t.TempDir(), address: endtoend.FreeAddress(t)}
	blocks := regexp.MustCompile("(?ms)^```(sh|yaml)\n(.*?)^```$").FindAllStringSubmatch(strings.ReplaceAll(string(page), docPort, w.address), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has nothing to play")
	}

	for _, b := range blocks {
		if b[1] == "yaml" {
			w.write(b[2])
		} else {
			w.play(b[2])
		}
	}

	w.daemon.Stop(t)
}

func (w *walk) write(block string) {
	first, _, _ := strings.Cut(block, "\n")
	name, ok := strings.CutPrefix(first, "# ")
	if !ok || !filepath.IsLocal(name) {
		w.t.Fatalf("%q does not name the file of a block", first)
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(block), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) play(block string) {
	for _, item := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, rest, _ := strings.Cut(item, "\n")
		w.command(command, strings.FieldsFunc(rest, func(r rune) bool { return r == '\n' }))
	}
}

func (w *walk) command(command string, want []string) {
	w.t.Helper()
	name, args, _ := strings.Cut(command, " ")
	switch {
	case name == "cd":
		w.dir = filepath.Join(w.dir, args)
	case name == "llama-server":
		w.serveModel()
	case command == "rouse serve &":
		w.daemon = endtoend.Rouse(w.t, "serve")
		w.daemon.Dir = w.dir
		w.daemon.UntilReady(w.t)
	default:
		w.prints(command, want)
	}
}

// prints executes a command until it prints what the page shows: a person looks again, too. One that does
// something is executed once.
func (w *walk) prints(command string, want []string) {
	w.t.Helper()
	code := 0
	if n := len(want); n > 0 {
		if m := regexp.MustCompile(`^\(exit (\d+)\)$`).FindStringSubmatch(want[n-1]); m != nil {
			code, _ = strconv.Atoi(m[1]) // digits
			want = want[:n-1]
		}
	}

	var out string
	var err error
	try := func() bool {
		out, err = w.execute(command, code)
		return err == nil && missing(out, want) == ""
	}
	if regexp.MustCompile(`^(ls|cat|rouse (runs|show|why|budget|jobs|status|doctor|inbox|db)) ?`).MatchString(command) {
		w.until(command, try, func() string { return w.complaint(out, want, err) })
	} else if !try() {
		w.t.Fatalf("$ %s\n%s", command, w.complaint(out, want, err))
	}
}

func (w *walk) until(what string, ok func() bool, why func() string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("$ %s\n%s", what, why())
		}
	}()
	cmdtest.Until(w.t, what, ok)
}

func (w *walk) complaint(out string, want []string, err error) string {
	return fmt.Sprintf("%s\nnot in it: %s\n%v", out, missing(out, want), err)
}

// execute executes a command in a shell, whose exit code must be the given one.
func (w *walk) execute(command string, code int) (string, error) {
	p := endtoend.RouseAs(w.t, "sh", "-c", command)
	p.Dir = w.dir
	var out bytes.Buffer
	p.Stdout, p.Stderr = &out, &out

	err := p.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == code:
		err = nil
	case err == nil && code != 0:
		err = fmt.Errorf("exit code 0, want %d", code)
	}
	return out.String(), err
}

// missing is the first of some lines that an output does not have after those before it; "" when it has all.
func missing(out string, want []string) string {
	lines := strings.Split(out, "\n")
	for _, line := range want {
		parts := strings.Split(strings.Join(strings.Fields(line), " "), "…")
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}

		fits := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		at := 0
		for ; at < len(lines) && !fits.MatchString(strings.Join(strings.Fields(lines[at]), " ")); at++ {
		}
		if at == len(lines) {
			return line
		}
		lines = lines[at+1:]
	}
	return ""
}

// serveModel is the model server of the page: its model writes the report that it is asked for.
func (w *walk) serveModel() {
	call := func(name string, args map[string]string) []model.Call {
		raw, err := json.Marshal(args)
		if err != nil {
			w.t.Fatal(err)
		}
		return []model.Call{{ID: name, Name: name, Args: raw}}
	}
	s := modeltest.New(w.t,
		modeltest.Turn{Calls: call("file_write", map[string]string{"path": "report.md", "content": "Food: 15.35\n"}), Usage: model.Usage{Input: 2000, Output: 100}},
		modeltest.Turn{Calls: call("complete", map[string]string{"summary": "Wrote report.md: 15.35 were spent on food, and nothing else."}), Usage: model.Usage{Input: 2200, Output: 50}})

	to, err := url.Parse(s.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = http.Serve(l, httputil.NewSingleHostReverseProxy(to)) }() //nolint:gosec // loopback, until the end of the test
	w.t.Cleanup(func() { _ = l.Close() })
}
