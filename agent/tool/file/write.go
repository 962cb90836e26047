package file

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"rouse/agent/tool"
)

//go:embed write.md
var writeText string

// Limits of file_write (OSA-32).
const (
	maxContent   = 30_000 // characters
	maxDiffLines = 80
	maxDiffChars = 12_000
)

// structured are files that a text would break.
var structured = map[string]bool{".xlsx": true, ".xls": true, ".xlsm": true, ".ods": true, ".pdf": true, ".pptx": true, ".ppt": true, ".odp": true,
	".docx": true, ".doc": true, ".odt": true, ".zip": true, ".gz": true, ".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".db": true, ".sqlite": true}

type writeArgs struct {
	Path    string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	Content string `json:"content" jsonschema:"at most 30,000 characters"`
	Mode    string `json:"mode,omitempty" jsonschema:"overwrite (default) or append"`
	DryRun  bool   `json:"dry_run,omitempty" jsonschema:"show the difference and change nothing"`
}

type writeResult struct {
	Path    string `json:"path"`
	Created bool   `json:"created"`
	Bytes   int    `json:"bytes"`
	Diff    string `json:"diff"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

func (f *files) write(ctx context.Context, _ tool.Invocation, a writeArgs) (tool.Envelope, error) {
	if n := utf8.RuneCountInString(a.Content); n > maxContent {
		return tool.Failure(tool.KindInvalidArgs, "the content has %d characters; write at most %d at once and append the rest", n, maxContent).WithField("content", ""), nil
	}
	if strings.ContainsRune(a.Content, 0) {
		return tool.Failure(tool.KindInvalidArgs, "the content holds a NUL character, which no text has").WithField("content", ""), nil
	}
	if ext := strings.ToLower(filepath.Ext(a.Path)); structured[ext] {
		return tool.Failure(tool.KindRejected, "a %s file is not text; write .txt, .md or .csv instead", ext).WithField("path", ""), nil
	}
	place, err := f.roots.At(a.Path, true)
	if err != nil {
		return refused(a.Path, err), nil
	}
	defer place.Close()
	old, err := current(place, a.Path)
	if err != nil {
		return refused(a.Path, err), nil
	}
	text := a.Content
	if a.Mode == "append" {
		text = old.text + a.Content
	}
	if len(text) > maxRaw {
		return tool.Failure(tool.KindRejected, "%s would have %d bytes, more than the %d that the file tools take", a.Path, len(text), maxRaw).WithField("content", ""), nil
	}
	res := writeResult{Path: a.Path, Created: old.info == nil, Bytes: len(text), Diff: diff(a.Path, old.text, text), DryRun: a.DryRun}
	if a.DryRun {
		return tool.Success(res), nil
	}
	temp, err := draft(place, old, text)
	if err != nil {
		return refused(a.Path, place.Explain(err)), nil
	}
	if err := place.Announce(ctx, temp); err != nil {
		return tool.Envelope{}, errors.Join(err, place.Remove(temp))
	}
	if err := publish(place, a.Path, temp, old); err != nil {
		return refused(a.Path, place.Explain(err)), nil
	}
	return tool.Success(res), nil
}

// before is what a file was; info is nil when there was none.
type before struct {
	info fs.FileInfo
	text string
}

// still says whether nobody changed the file meanwhile.
func (b before) still(p *tool.Place) bool {
	now, err := p.Lstat(p.Rel)
	if b.info == nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return err == nil && os.SameFile(now, b.info) && now.Size() == b.info.Size() && now.ModTime().Equal(b.info.ModTime())
}

// current reads what is there now, and refuses what may not be replaced.
func current(p *tool.Place, shown string) (before, error) {
	file, err := p.OpenPlain()
	var bad *tool.PathError
	if errors.As(err, &bad) && bad.Kind == tool.KindNotFound {
		return before{}, nil
	}
	if err != nil {
		return before{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return before{}, err
	case info.IsDir():
		return before{}, &tool.PathError{Kind: tool.KindInvalidArgs, Message: shown + " is a folder"}
	case info.Mode().Perm()&0o200 == 0:
		return before{}, &tool.PathError{Kind: tool.KindRejected, Message: shown + " is marked read-only"}
	}
	text, err := content(file, shown)
	return before{info, text}, err
}

// draft makes the file whole before it takes its name, so no reader sees half of it.
func draft(p *tool.Place, old before, text string) (temp string, err error) {
	folder := filepath.Dir(p.Rel)
	if folder != "." {
		if err := p.MkdirAll(folder, 0o755); err != nil {
			return "", err
		}
	}
	temp = filepath.Join(folder, ".rouse-"+rand.Text()+".tmp") // hidden: no watch takes it
	file, err := p.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	if old.info != nil {
		err = file.Chmod(old.info.Mode().Perm()) // the mode of OpenFile is narrowed by the process's umask
	}
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", errors.Join(err, p.Remove(temp))
	}
	return temp, nil
}

// publish gives the draft its name.
func publish(p *tool.Place, shown, temp string, old before) (err error) {
	if !old.still(p) { // another run's words are not lost
		err = &tool.PathError{Kind: tool.KindExecutionError, Message: shown + " was changed meanwhile, and was left as it is now; read it again"}
	}
	if err == nil {
		err = p.Rename(temp, p.Rel)
	}
	if err != nil {
		return errors.Join(err, p.Remove(temp))
	}
	return settle(p, filepath.Dir(p.Rel))
}

// settle makes the new name last through a power cut; Windows has no such call.
func settle(p *tool.Place, folder string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := p.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// diff shows what changes, cut to a readable size.
func diff(path, old, text string) string {
	name := strings.TrimPrefix(filepath.ToSlash(path), "/")
	d := udiff.Unified("a/"+name, "b/"+name, old, text)
	lines := strings.SplitAfter(strings.TrimSuffix(d, "\n"), "\n")
	if len(lines) > maxDiffLines {
		left := len(lines) - maxDiffLines + 1
		d = strings.Join(lines[:maxDiffLines-1], "") + fmt.Sprintf("… %d more lines\n", left)
	}
	if utf8.RuneCountInString(d) > maxDiffChars {
		d = string([]rune(d)[:maxDiffChars-2]) + "…\n"
	}
	return d
}
