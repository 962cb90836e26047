package file

import (
	"context"
	_ "embed"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/agentdb/ledger"
)

//go:embed write.md
var writeText string

// maxContent bounds what file_write takes at once (OSA-32).
const maxContent = 30_000 // characters

type writeArgs struct {
	Path    string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	Content string `json:"content" jsonschema:"at most 30,000 characters"`
	Mode    string `json:"mode,omitempty" jsonschema:"overwrite (default) or append"`
	DryRun  bool   `json:"dry_run,omitempty" jsonschema:"show the difference and change nothing"`
}

type writeResult struct {
	Path        string `json:"path"`
	Created     bool   `json:"created"`
	Bytes       int    `json:"bytes"`
	Diff        string `json:"diff"`
	Risk        string `json:"risk_level"` // low, medium, high
	CanUndo     bool   `json:"can_undo"`
	OperationID string `json:"operation_id,omitempty"`
	DryRun      bool   `json:"dry_run,omitempty"`
}

var writeSpec = changing("file_write", writeText, tool.WritesFiles)

func (f *files) writeTool(s tool.Spec) (tool.Tool, error) {
	s.Enum = map[string][]string{"mode": {"overwrite", "append"}}
	return tool.Define(s, f.write)
}

// writeAlias is write_file (YOA-05): file_write with nothing to choose.
func (f *files) writeAlias(s tool.Spec) (tool.Tool, error) {
	type args struct {
		Path    string `json:"path"`
		Content string `json:"content" jsonschema:"at most 30,000 characters"`
	}
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a args) (tool.Envelope, error) {
		return f.write(ctx, in, writeArgs{Path: a.Path, Content: a.Content})
	})
}

const writeAliasText = "Write a text file as a whole, with the folders it needs. An existing file is replaced."

func (f *files) write(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
	if n := utf8.RuneCountInString(a.Content); n > maxContent {
		return tool.Failure(tool.KindInvalidArgs, "the content has %d characters; write at most %d at once and append the rest", n, maxContent).WithField("content", ""), nil
	}
	if strings.ContainsRune(a.Content, 0) {
		return tool.Failure(tool.KindInvalidArgs, "the content holds a NUL character, which no text has").WithField("content", ""), nil
	}

	c, err := f.prepare(ctx, in, a.Path)
	if err != nil {
		return failureOf(a.Path, err)
	}
	defer c.place.Close()

	text := a.Content
	if a.Mode == "append" {
		text = c.old.text + a.Content
	}
	if len(text) > maxRaw {
		return tool.Failure(tool.KindRejected, "%s would have %d bytes, more than the %d that the file tools take", a.Path, len(text), maxRaw).WithField("content", ""), nil
	}

	res := writeResult{Path: a.Path, Created: c.old.info == nil, Bytes: len(text), Diff: diff(a.Path, c.old.text, text), Risk: c.risk(text), CanUndo: c.notUndoable == "", DryRun: a.DryRun}
	if a.DryRun {
		return tool.Success(res, c.warnings()...), nil
	}

	kind := ledger.FileWrite
	if res.Created {
		kind = ledger.FileCreate
	}
	if res.OperationID, err = f.apply(ctx, in, c, kind, text); err != nil {
		return failureOf(a.Path, err)
	}

	return tool.Success(res, c.warnings()...), nil
}
