package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

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
	lanes chan struct{}
	time  time.Duration // for one file
}

// New gives a viewer. The program that it is part of must call [Child] first of all.
func New() *Viewer { return &Viewer{make(chan struct{}, lanes), maxTime} }

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

	self, err := executable()
	if err != nil {
		return fmt.Errorf("a file is read by a second process of rouse: %w", err)
	}

	late := fault("cannot be read within %s; it is damaged, or made to keep its readers busy", v.time)
	timed, cancel := context.WithTimeoutCause(ctx, v.time, late)
	defer cancel()

	child := exec.CommandContext(timed, self, childName)
	child.Dir, child.WaitDelay = os.TempDir(), time.Second
	child.Env = []string{"GOMAXPROCS=2", "GOTRACEBACK=none", "GORACE=" + os.Getenv("GORACE")} // the daemon's own holds secrets
	child.Stdin = r.with(content)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		return fmt.Errorf("a file is read by a second process of rouse, and that does not start: %w", err)
	}

	// A child that answers more than any preview holds is cut off, and its answer is no JSON then.
	text, readErr := io.ReadAll(io.LimitReader(out, maxAnswer))
	cancelled := context.Cause(timed) // asked before cancel, which would be the cause
	cancel()                          // whatever it still does is of no use
	err = child.Wait()

	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cancelled != nil:
		return cancelled
	}

	var a answer
	if readErr != nil || json.Unmarshal(text, &a) != nil {
		return fault("is damaged, or is made to use up more than %d MiB of memory: its reader ended (%v)", maxMemory>>20, cmp.Or(err, readErr, io.ErrUnexpectedEOF))
	}
	if a.Fault != "" {
		return &Fault{a.Fault}
	}

	return json.Unmarshal(a.Result, into)
}

// executable is this binary, on Linux also where another one has its name by now.
func executable() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
