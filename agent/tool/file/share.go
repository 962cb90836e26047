package file

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/folderzip"
	"rouse/internal/ledger"
	"rouse/internal/ledger/artifact"
	"rouse/internal/text"
)

//go:embed share.md
var shareText string

// Limits of shared content.
const (
	maxShared      = 32 << 20  // bytes of one artifact
	maxSharedOfRun = 256 << 20 // bytes of all artifacts of a run
	maxName        = 200       // bytes
)

type shareArgs struct {
	Path        string `json:"path,omitempty"`
	Content     string `json:"content,omitempty"`
	Filename    string `json:"filename,omitempty" jsonschema:"without a folder"`
	Description string `json:"description,omitempty" jsonschema:"in a line"`
}

type shareResult struct {
	Artifact    string `json:"artifact"` // id of the artifact
	Filename    string `json:"filename"`
	Version     int    `json:"version"`
	Size        int64  `json:"size"` // bytes
	Hash        string `json:"sha256"`
	Description string `json:"description,omitempty"`
}

// shareSpec is the spec of share_artifact. The tool changes only the ledger, which accepts a call
// once. It is not a read tool, so that the reduction of a long result cannot call it.
var shareSpec = tool.Spec{
	Name: "share_artifact", Description: shareText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesArtifact,
	OnDemand: true, Example: `{"path":"out/report.md","description":"The report of the week"}`,
}

// name returns the name of the artifact.
func (a shareArgs) name() string {
	if a.Filename == "" {
		return filepath.Base(a.Path)
	}
	return a.Filename
}

// checkShare returns an error if the arguments are incomplete or contradict each other. It does not
// read the file.
func (f *files) checkShare(a shareArgs) error {
	wrong := func(field, expected, format string, args ...any) error {
		return tool.Refuse(tool.KindInvalidArgs, format, args...).WithField(field, expected)
	}
	switch {
	case f.ContentOnly && a.Path != "":
		return wrong("path", "", "this agent has no files: give content with a filename")
	case a.Path == "" && a.Content == "":
		return wrong("path", "a file, or content with a filename", "there is nothing to share: give path or content")
	case a.Path != "" && a.Content != "":
		return wrong("content", "", "give path or content, not both")
	case strings.Contains(a.Content, "---SHARED_ARTIFACT_START---") || strings.Contains(a.Content, "---SHARED_ARTIFACT_END---"):
		// A program that finds artifacts by these marks would mistake a part of the content for
		// another artifact.
		return wrong("content", "the content alone", "the content holds a mark by which shared artifacts are found in texts (---SHARED_ARTIFACT_…---); leave it out, or share a file by its path")
	case a.Content != "" && a.Filename == "":
		return wrong("filename", "a name like report.md", "content needs a filename")
	case !isFileName(a.name()) && (a.Filename != "" || !isRelativeTop(a.Path)):
		return wrong("filename", fmt.Sprintf("a name like report.md of at most %d bytes", maxName), "%q is not the name of a file without a folder", a.name())
	}
	return nil
}

func (f *files) share(ctx context.Context, in tool.Invocation, a shareArgs) (tool.Envelope, error) {
	if err := f.checkShare(a); err != nil {
		return tool.Envelope{}, err
	}

	// Redacted before and after, because expanding \n could change the middle of a secret.
	a.Content = f.redact(a.Content)
	name, content, warnings, err := f.contentToShare(ctx, a)
	if err != nil {
		return failureOf(a.Path, err)
	}

	all, err := f.artifacts.List(ctx, in.Run)
	if err != nil {
		return tool.Envelope{}, err
	}
	whole := int64(0)
	for _, one := range all {
		whole += one.Size
	}
	if whole+int64(len(content)) > maxSharedOfRun {
		return tool.Failure(tool.KindRejected, "this run has shared %d bytes, and at most %d are kept of one", whole, maxSharedOfRun), nil
	}

	// Only text is redacted. Redaction could damage binary data.
	if text := string(content); utf8.Valid(content) {
		content = []byte(f.redact(text))
	}

	kept, err := f.artifacts.Add(ctx, ledger.Attempt{Run: in.Run, Number: in.Attempt},
		artifact.Artifact{Agent: in.Agent, Key: in.Key, Name: f.redact(name), Description: f.redact(text.Collapse(a.Description))}, content)
	if err != nil {
		return tool.Envelope{}, fmt.Errorf("what is shared cannot be kept: %w", err)
	}

	return tool.Success(shareResult{fmt.Sprint(kept.ID), kept.Name, kept.Version, kept.Size, kept.Hash, kept.Description}, warnings...), nil
}

// isRelativeTop reports whether a path ends in "." or "..", which are not names.
func isRelativeTop(path string) bool {
	return path != "" && (filepath.Base(path) == "." || filepath.Base(path) == "..")
}

// isFileName reports whether a name has no folder and is valid on every system.
func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// contentToShare returns the name and the content of the artifact.
func (f *files) contentToShare(ctx context.Context, a shareArgs) (name string, content []byte, warnings []string, err error) {
	name = a.name()
	if a.Path == "" {
		text := a.Content
		// A model that escapes twice means line breaks, unless the content also has real ones.
		if !strings.Contains(text, "\n") && strings.Contains(text, `\n`) {
			text = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(text)
			warnings = append(warnings, `the content had no line breaks: each \n and \t in it became one, or a tab`)
		}
		if len(text) > maxShared {
			return "", nil, nil, tooLarge("the content")
		}
		return name, []byte(text), warnings, nil
	}

	file, err := f.roots.Open(a.Path)
	if isNotFound(err) {
		e := f.notFoundWithCandidates(ctx, a.Path, err.Error())
		e.Kind = tool.KindExecutionError // required by the contract of the tool
		return "", nil, nil, e
	}
	if err != nil {
		return "", nil, nil, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err == nil && info.IsDir() {
		content, warnings, err = f.folderToShare(ctx, a.Path)
		return f.folderName(a), content, warnings, err
	}
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(file, maxShared+1))
	}
	switch {
	case err != nil:
		return "", nil, nil, tool.RefusePath(tool.KindExecutionError, "%s cannot be copied: %v", a.Path, err)
	case len(content) > maxShared:
		return "", nil, nil, tooLarge(a.Path)
	}
	return name, content, nil, nil
}

func tooLarge(what string) error {
	return tool.Refuse(tool.KindRejected, "%s has more than the %d bytes that can be shared as one; share a part of it, or tell where it is", what, maxShared)
}

// errTooMuch ends the walk of a folder that is too large to share.
var errTooMuch = errors.New("too much")

// archiveEnding is the extension of the archive of a shared folder.
const archiveEnding = ".zip"

// folderName returns the name of the archive of a folder.
func (f *files) folderName(a shareArgs) string {
	name := a.Filename
	if name == "" {
		name = filepath.Base(filepath.Clean(a.Path))
	}
	if name == "." || name == ".." {
		name = filepath.Base(f.roots.Workdir())
	}
	if !strings.EqualFold(filepath.Ext(name), archiveEnding) {
		name += archiveEnding
	}
	return name
}

// folderToShare packs a folder into an archive. The files are sorted by path and texts are
// redacted. Links, .git and files that tools may not read are omitted and named in a warning.
func (f *files) folderToShare(ctx context.Context, at string) (content []byte, warnings []string, err error) {
	place, err := f.roots.Resolve(at, false)
	if err != nil {
		return nil, nil, err
	}
	defer place.Close()

	zip := folderzip.NewWriter()
	var left []string
	count, total := 0, int64(0)
	top := filepath.ToSlash(place.Rel)
	err = fs.WalkDir(place.FS(), top, func(rel string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(rel, top), "/")
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && rel == top:
			return err
		case err != nil, e.IsDir() && (e.Name() == ".git" || place.IsHidden(rel)), !e.IsDir() && !e.Type().IsRegular():
			left = append(left, name)
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		}

		// Each file is opened by its own path, so that a forbidden file stays forbidden within a
		// folder.
		one, err := f.readWhole(path.Join(filepath.ToSlash(at), name), maxShared-total)
		if errors.As(err, new(*tool.Refusal)) {
			left = append(left, name)
			return nil
		}
		if err != nil {
			return err
		}
		if count, total = count+1, total+int64(len(one)); count > folderzip.MaxFiles {
			return errTooMuch
		}
		if utf8.Valid(one) {
			one = []byte(f.redact(string(one)))
		}
		return zip.Add(f.redact(name), one)
	})

	switch {
	case errors.Is(err, errTooMuch):
		return nil, nil, tool.Refuse(tool.KindRejected, "%s has more than the %d files or the %d bytes that can be shared as one folder; share a part of it, or tell where it is", at, folderzip.MaxFiles, maxShared)
	case err != nil:
		return nil, nil, tool.RefusePath(tool.KindExecutionError, "%s cannot be copied: %v", at, place.Explain(err))
	case count == 0:
		return nil, nil, tool.Refuse(tool.KindInvalidArgs, "the folder %s holds no file that can be shared", at).WithField("path", "a file, or a folder with files")
	}

	if content, err = zip.Bytes(); err != nil {
		return nil, nil, tool.RefusePath(tool.KindExecutionError, "%s cannot be packed: %v", at, err)
	}
	if len(left) > 0 {
		warnings = append(warnings, fmt.Sprintf("left out of the folder, for no tool may read them or they are links: %s", text.Clean(f.redact(text.List(left, 10)))))
	}
	return content, warnings, nil
}

// readWhole reads a file of at most most bytes. The error is a *tool.Refusal if the roots refuse
// the path.
func (f *files) readWhole(at string, most int64) ([]byte, error) {
	file, err := f.roots.Open(at)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = errTooMuch
	}
	return content, err
}
