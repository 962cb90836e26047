package shell

import (
	"context"
	"errors"
	"os"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// approvedFiles are the files of a command that its owner has approved, as they were when they were compared
// with what was approved. Of a command that needed no approval there are none.
type approvedFiles struct {
	*fileBinder
}

// approvedFiles takes copies of the files that a command names, and refuses the call when it would no longer
// do what was approved.
func (f *family) approvedFiles(ctx context.Context, in tool.Invocation, name string, o resolvedCommand) (files approvedFiles, refused *tool.Envelope, err error) {
	if in.Approved == "" {
		return files, nil, nil
	}

	folder, err := f.host.MkdirTemp("files")
	if err != nil {
		return files, nil, err
	}

	b, err := f.host.bindFiles(o.commandLine, folder)
	files = approvedFiles{b}
	same := false
	var bad *unapprovableError
	switch {
	case errors.As(err, &bad): // which it was not when it was approved
		err = nil
	case err == nil:
		same, err = f.isApproved(ctx, in, name, o, b)
	}

	if err != nil || !same {
		files.remove()
		e := tool.Failure(tool.KindRejected, "it is not what its owner approved any more: a file that it names was changed in between. Make the call again, and they are asked again")
		return approvedFiles{}, &e, err
	}

	for _, one := range b.files {
		if one.copyAs != "" {
			one.linkNeighbours(b.writable)
		}
	}
	return files, nil, nil
}

// isApproved reports whether a command with these files is the action that was approved.
func (f *family) isApproved(ctx context.Context, in tool.Invocation, name string, o resolvedCommand, b *fileBinder) (bool, error) {
	a := f.action(ctx, o)
	a.Files = b.files
	action, err := a.text()
	return err == nil && tool.ActionHash(in.Agent, name, action) == in.Approved, err
}

// commandLine is the command line with the copies in the place of the files.
func (a approvedFiles) commandLine(l commandLine) (argv []string, script string) {
	if a.fileBinder == nil {
		return l.argv, l.script
	}
	return l.renamed(a.copyOf)
}

// folders are what the program may read in addition.
func (a approvedFiles) folders() []string {
	if a.fileBinder == nil {
		return nil
	}
	return []string{a.copies}
}

// original is a text of the program with the names that the files have for its caller.
func (a approvedFiles) original(said string) string {
	if a.fileBinder == nil || !strings.Contains(said, a.copies) {
		return said
	}

	var names []string
	for _, f := range a.files {
		if f.copyAs != "" {
			names = append(names, f.copyAs, text.Visible(f.written))
		}
	}
	return strings.NewReplacer(names...).Replace(said)
}

func (a approvedFiles) remove() {
	if a.fileBinder != nil {
		_ = os.RemoveAll(a.copies) // what cannot be removed is left to the system's cleaning of temporary files
	}
}
