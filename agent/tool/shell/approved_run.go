package shell

import (
	"context"
	"errors"
	"os"
	"strings"

	"rouse/agent/tool"
	"rouse/internal/text"
)

// approvedFiles are the files of a command that its owner has approved, as they were when the
// command was compared with the approval. A command without an approval has none.
type approvedFiles struct{ *fileBinder }

// approvedFiles copies the files that a command names, and refuses the call if it is no longer the
// approved one.
func (f *family) approvedFiles(ctx context.Context, in tool.Invocation, name string, o resolvedCommand) (files approvedFiles, err error) {
	if in.Approved == "" {
		return files, nil
	}

	folder, err := f.host.MkdirTemp("files")
	if err != nil {
		return files, err
	}
	b, err := f.host.bindFiles(o.commandLine, folder)
	files = approvedFiles{b}
	same := false
	if err == nil {
		a := f.action(ctx, o)
		a.Files = b.files
		action := ""
		action, err = a.text()
		same = tool.ActionHash(in.Agent, name, action) == in.Approved
	}
	if errors.As(err, new(*unapprovableError)) { // which it was not when it was approved
		err = nil
	}
	if err == nil && !same {
		err = tool.Refuse(tool.KindRejected, "it is not what its owner approved any more: a file that it names was changed in between. Make the call again, and they are asked again")
	}
	if err != nil {
		files.remove()
		return approvedFiles{}, err
	}

	for _, one := range b.files {
		if one.copyAs != "" {
			one.linkNeighbours(b.writable)
		}
	}
	return files, nil
}

// commandLine returns the command line with the copies in the place of the files.
func (a approvedFiles) commandLine(l commandLine) (argv []string, script string) {
	if a.fileBinder == nil {
		return l.argv, l.script
	}
	return l.renamed(a.copyOf)
}

// folders are the folders that the program may read in addition.
func (a approvedFiles) folders() []string {
	if a.fileBinder == nil {
		return nil
	}
	return []string{a.copies}
}

// original replaces the copies in a text of the program by the names that its caller knows.
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
