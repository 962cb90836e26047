// Package file holds the file tools: file_read and file_write.
//
// # Design
//
// Every path goes through tool.Roots, so the tools decide only what a text file is, how
// much of it an answer holds, and how it is replaced: as a whole, under its old name, or
// not at all. What an answer leaves out it says, with the place to go on from. A file that
// is no text, that its owner marked read-only, or that has a second name is left as it is. A picture is
// shown to the model beside an envelope that says what it is.
package file

import "rouse/agent/tool"

type files struct{ roots *tool.Roots }

// Tools are the file tools on the roots of one run.
func Tools(roots *tool.Roots) ([]tool.Tool, error) {
	f := &files{roots}
	read, err := tool.Define(tool.Spec{Name: "file_read", Description: readText, Effect: tool.Read,
		Class: tool.ClassRead, Path: "path", Canonical: roots.Canonical, Look: roots.Look}, f.read)
	if err != nil {
		return nil, err
	}
	write, err := tool.Define(tool.Spec{Name: "file_write", Description: writeText, Effect: tool.Write,
		Class: tool.ClassEdit, Path: "path", Canonical: roots.Canonical, Enum: map[string][]string{"mode": {"overwrite", "append"}}}, f.write)
	if err != nil {
		return nil, err
	}
	return []tool.Tool{read, write}, nil
}
