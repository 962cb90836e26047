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

// Limits of one preview.
const (
	lanes     = 2 // concurrent previews
	maxTime   = 10 * time.Second
	maxMemory = 512 << 20 // bytes
	maxRest   = 4 << 10   // bytes
	maxAnswer = 48 << 20  // bytes, enough for a picture of 20 MiB in base64
)

// Viewer starts the processes that read files, a few at a time. It is safe for concurrent use.
type Viewer struct {
	box   *sandbox.Sandbox
	lanes chan struct{}
	time  time.Duration // timeout for one file
}

// New returns a viewer. The sandbox box confines its processes. The program must call
// [sandbox.Child] and [Child] at the start of main.
func New(box *sandbox.Sandbox) *Viewer { return &Viewer{box, make(chan struct{}, lanes), maxTime} }

// Fault describes a problem of a file. Its message continues a sentence that starts with the file
// name.
type Fault struct{ Message string }

func (f *Fault) Error() string { return f.Message }

func fault(format string, args ...any) error { return &Fault{fmt.Sprintf(format, args...)} }

// PDF holds the text of some pages.
type PDF struct {
	Pages       int // number of pages of the file
	First, Last int // pages shown; Last is 0 if First is after the last page
	Text        string
	Cut         bool   // the last page has more text
	Rest        string // the beginning of the omitted text, to find a secret that starts before it
	Unread      []int  // shown pages that could not be read completely
}

// PDF reads the pages from the page from, counted from 1. It returns as many pages as fit into
// chars characters.
func (v *Viewer) PDF(ctx context.Context, content io.Reader, from, chars int) (out PDF, err error) {
	err = v.show(ctx, request{Kind: kindPDF, From: from, Chars: chars}, content, &out)
	return out, err
}

// XLSX returns the result of [tabular.PreviewXLSX].
func (v *Viewer) XLSX(ctx context.Context, content io.Reader, sheet string, rows, columns int) (out tabular.SheetPreview, err error) {
	err = v.show(ctx, request{Kind: kindXLSX, Sheet: sheet, Rows: rows, Columns: columns}, content, &out)
	return out, err
}

// PNG converts a BMP picture to PNG.
func (v *Viewer) PNG(ctx context.Context, bmp io.Reader) (out []byte, err error) {
	err = v.show(ctx, request{Kind: kindBMP}, bmp, &out)
	return out, err
}

// show reads a file in a child process. An error that is not a *Fault is not caused by the file.
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
		// Any tier is sufficient: the limits apply on all of them, and a file cannot take over the
		// parsers.
		MinTier: sandbox.TierNone, Limits: sandbox.Limits{Memory: maxMemory, Processes: 8, OpenFiles: 32, FileSize: 1},
		Env:   []string{"GOMAXPROCS=2", "GOTRACEBACK=none", "GORACE=" + os.Getenv("GORACE")}, // the daemon's environment contains secrets
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

// answerText collects the answer of a child, up to maxAnswer. A longer answer is cut off, so that
// it is not valid JSON.
type answerText struct{ held []byte }

// Write implements io.Writer.
func (t *answerText) Write(p []byte) (int, error) {
	t.held = append(t.held, p[:min(len(p), maxAnswer-len(t.held))]...)
	return len(p), nil
}

// rootFolder returns a folder that exists on every system and in every sandbox.
func rootFolder() string {
	if runtime.GOOS == "windows" {
		return os.TempDir()
	}
	return "/"
}
