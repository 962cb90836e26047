package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/folderzip"
	"rouse/internal/text"
)

// errTooMuch ends a walk over a folder that is too large to be shared.
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

// folderToShare packs a folder into an archive (OSA-19): its files in the order of their paths,
// texts redacted. Links, files that no tool may read, and .git are left out and named in a warning.
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

		// Each by its own path, so that a file that may not be read is not read within a folder either.
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

// readWhole reads a file of at most so many bytes. The error is a *tool.Refusal if the roots refuse
// it.
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
