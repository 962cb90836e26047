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

// docPort is the address of the model server in docs/start/quickstart.md. The test replaces it with a
// free address.
const docPort = "127.0.0.1:8080"

// walk plays a page of commands. A block of yaml that begins with "# FILE" is written to that file.
// A block of sh contains commands after "$ ". Below each command are lines that its output must
// contain, in this order. In these lines … matches any text, and a space any white space. "(exit
// N)" is the expected exit code of a command; the default is 0.
type walk struct {
	t       *testing.T
	dir     string // working directory of the next command
	address string // replaces docPort
	daemon  *endtoend.Program
}

// TestWalkthrough plays docs/start/quickstart.md as a reader would, and compares the output with the
// page.
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

// prints repeats a command until its output matches the page. It executes a command with effects
// only once.
func (w *walk) prints(command string, want []string) {
	w.t.Helper()
	code := 0
	if n := len(want); n > 0 {
		if m := regexp.MustCompile(`^\(exit (\d+)\)$`).FindStringSubmatch(want[n-1]); m != nil {
			code, _ = strconv.Atoi(m[1]) // the pattern matches digits
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

// execute executes a shell command and checks its exit code.
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

// missing returns the first line that an output does not contain after the lines before it, or "".
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

// serveModel starts the model server of the page, whose model writes the requested report.
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
