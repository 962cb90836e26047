package shell

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// Limits of the files that an approval covers. If a command exceeds the limits of a file or folder,
// its approval holds for one call only.
const (
	maxNamedFiles   = 64       // in folders that an agent can write
	maxMentions     = 5_000    // words of a command line tried as paths, over all passes
	maxApprovedFile = 16 << 20 // bytes
	maxFolderFiles  = 2_000    // entries of a folder, including subfolders
	maxFolderBytes  = 16 << 20 // bytes of all files in a folder
	maxShownFile    = 8 << 10  // bytes of a file shown to the owner
	maxReadFile     = 4 << 20  // bytes of a file from which text is extracted
	maxBases        = 16       // folders against which relative paths are tried
	maxExpanded     = 20_000   // names compared with the patterns of a command line
	maxNeighbours   = 200      // files linked next to the copy of an approved file
)

// namedFile is a file or folder that a command line names and that lies where an agent can write.
type namedFile struct {
	Path   string `json:"path"`             // with the owner's links resolved
	Kind   string `json:"kind"`             // file, folder, link
	SHA256 string `json:"sha256,omitempty"` // of the content; empty if the file is too large to hash
	Size   int64  `json:"size,omitempty"`   // in bytes; for a folder, of all its files
	Target string `json:"target,omitempty"` // of a link

	written string      // path as written in the command line
	copied  bool        // a copy may replace the file
	secret  bool        // the name suggests a secret, so the content is not shown
	mode    fs.FileMode // of a file
	content []byte      // of a small file
	isText  bool        // the file may be executed, so its source is shown
	format  string      // type of a binary file
	words   string      // text extracted from a binary file
	copyAs  string      // path of the copy; empty if there is none
}

// The kinds of a namedFile.
const (
	kindFile   = "file"
	kindFolder = "folder"
	kindLink   = "link"
)

// unapprovableError is returned if a command cannot be offered for approval.
type unapprovableError struct{ why string }

func (e *unapprovableError) Error() string { return e.why }

// fileBinder finds the files of a command line. It never follows a link at or below a folder in
// which agents can write: the link could point elsewhere after the approval.
type fileBinder struct {
	writable nofollow.UntrustedDirs // folders in which an agent or another program can write
	bases    []string               // folders against which relative paths are resolved
	files    []*namedFile
	known    map[string]*namedFile // by path
	mentions int
	expanded int    // names compared with patterns
	copies   string // folder for copies; empty to make no copies
	readable func(name string, content []byte) (kind, text string)
	scripts  []string // words of the command line that name executed files; nil if unknown
	anyRuns  bool     // the command is a script, so it may execute any file
	err      error
}

// bindFiles finds and reads the files that a command line names. If copies is set, it copies their
// content to that folder. It returns an *unapprovableError if the command cannot be approved.
func (h *Launcher) bindFiles(l commandLine, copies string) (*fileBinder, error) {
	b := &fileBinder{writable: h.Writable, bases: []string{h.Roots.Workdir()}, known: map[string]*namedFile{}, copies: copies, readable: h.Readable, scripts: Scripts(l.argv), anyRuns: l.argv == nil}
	// Paths may be relative to a named folder (cd X, make -C X), so repeat until no new folders are
	// found.
	for known := -1; known != len(b.bases) && b.err == nil; {
		known = len(b.bases)
		l.renamed(b.note)
	}

	for i := range b.files {
		if b.err == nil {
			b.err = b.read(i)
		}
	}
	if b.err == nil && copies == "" {
		b.err = b.missingScript(l)
	}

	slices.SortFunc(b.files, func(x, y *namedFile) int { return cmp.Compare(x.Path, y.Path) })
	return b, b.err
}

// note records the files that a mention may stand for.
func (b *fileBinder) note(m mention) (string, bool) {
	if b.mentions++; b.mentions > maxMentions && b.err == nil {
		b.err = &unapprovableError{"it has more words than can be looked at for the files that they name; write a shorter one"}
	}
	if b.err != nil || m.path == "" || strings.ContainsRune(m.path, 0) {
		return "", false
	}

	for _, path := range b.candidates(m) {

		paths := []string{path}
		if found := b.expand(path); len(found) > 0 {
			paths, m.fixed = append(paths, found...), true
		}
		for _, path := range paths {
			b.notePath(path, m)
		}
	}
	return "", false
}

// candidates returns the paths that a mention may stand for.
func (b *fileBinder) candidates(m mention) (out []string) {
	for _, base := range b.bases {
		if filepath.IsAbs(m.path) {
			base = ""
		}
		out = append(out, filepath.Join(base, m.path))
	}
	return out
}

// expand returns the paths that a shell may substitute for a pattern. It does not follow links of
// agents, because the result would reveal names in other folders.
func (b *fileBinder) expand(pattern string) []string {
	if !isPattern(pattern) {
		return nil
	}

	top := filepath.VolumeName(pattern) + string(filepath.Separator)
	found := []string{top}
	for element := range strings.SplitSeq(strings.TrimPrefix(pattern, top), string(filepath.Separator)) {
		var next []string
		for _, folder := range found {
			if !isPattern(element) {
				next = append(next, filepath.Join(folder, element))
				continue
			}

			entries, err := b.writable.ReadDir(folder)
			if err != nil {
				continue // not a folder, or not readable
			}
			if b.expanded += len(entries); b.expanded > maxExpanded {
				b.err = &unapprovableError{fmt.Sprintf("its patterns are looked for among more than %d names; write one that begins with the folder that is meant", maxExpanded)}
				return nil
			}
			for _, e := range entries {
				if ok, err := filepath.Match(element, e.Name()); ok && err == nil {
					next = append(next, filepath.Join(folder, e.Name()))
				}
			}
		}
		found = next
	}
	return found
}

func (b *fileBinder) notePath(path string, m mention) {
	path, err := b.writable.Resolve(path)
	if err != nil || b.err != nil || !b.writable.Covers(path) {
		return
	}
	if f := b.known[path]; f != nil {
		f.copied = f.copied || !m.fixed && f.Kind == kindFile
		return
	}

	f, err := b.inspect(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		b.err = err
		return
	case f.Kind == kindLink && !m.fixed:
		b.err = &unapprovableError{fmt.Sprintf("%s is a link in a folder where agents can write, and could lead elsewhere by then; name the file that is meant", text.Visible(m.path))}
		return
	case len(b.files) == maxNamedFiles:
		b.err = &unapprovableError{fmt.Sprintf("it names more than %d files that agents can change, and nobody could look at them all", maxNamedFiles)}
		return
	}

	f.written, f.copied = m.path, !m.fixed && f.Kind == kindFile
	b.files, b.known[path] = append(b.files, f), f
	if f.Kind == kindLink { // the command may change the link or follow it
		target := f.Target
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		b.notePath(target, mention{m.path, true})
	}
	if f.Kind == kindFolder && len(b.bases) < maxBases && !slices.Contains(b.bases, path) {
		b.bases = append(b.bases, path)
	}
}

// inspect returns the type, size and link target of a file below a writable folder.
func (b *fileBinder) inspect(path string) (*namedFile, error) {
	f := &namedFile{Path: path, secret: tool.IsSecretPath(b.writable.Within(path))}
	root, name, err := b.openFolder(path)
	if err != nil {
		return nil, err
	}
	defer root.Close()

	info, err := root.Lstat(name)
	if err != nil {
		return nil, fs.ErrNotExist // also if the name is invalid: no program can find such a file
	}

	switch f.mode = info.Mode(); {
	case f.mode.IsRegular():
		f.Kind, f.Size = kindFile, info.Size()
	case f.mode.IsDir():
		f.Kind = kindFolder
	case f.mode.Type() == fs.ModeSymlink:
		f.Kind = kindLink
		if f.Target, err = root.Readlink(name); err != nil {
			return nil, err
		}
	default:
		return nil, &unapprovableError{f.Path + " is neither a file nor a folder; what comes out of it could not be shown"}
	}

	return f, nil
}

// openFolder opens the parent folder of a path. It returns an error if a link of an agent is on the
// path.
func (b *fileBinder) openFolder(path string) (root *os.Root, name string, err error) {
	root, err = b.writable.OpenRoot(filepath.Dir(path))
	switch {
	case errors.As(err, new(*nofollow.LinkError)):
		return nil, "", &unapprovableError{path + " leads through a link in a folder where agents can write, which could lead elsewhere by then; name the file that is meant"}
	case err != nil:
		return nil, "", fs.ErrNotExist
	}
	return root, filepath.Base(path), nil
}

func errReplaced(path string) error {
	return &unapprovableError{path + " was replaced while it was read; try again"}
}

// read hashes a file, or the files of a folder, and makes the copy.
func (b *fileBinder) read(i int) error {
	f := b.files[i]
	switch f.Kind {
	case kindLink:
		return nil
	case kindFolder:
		return b.readFolder(f)
	}

	in, err := b.writable.Open(f.Path)
	if err != nil {
		return errReplaced(f.Path)
	}
	defer in.Close()

	info, err := in.Stat()
	if err != nil {
		return err
	}
	if f.Size = info.Size(); f.Size > maxApprovedFile {
		f.copied = false
		return nil
	}

	f.isText = b.anyRuns || info.Mode()&0o111 != 0 || slices.Contains(b.scripts, f.written)
	return f.hash(in, b.copies, i, b.readable)
}

// hash reads a file to its end. The copy has exactly the content that was hashed.
func (f *namedFile) hash(in io.Reader, copies string, i int, readable func(string, []byte) (string, string)) (err error) {
	out := io.Discard
	sum, small := sha256.New(), &boundedBuffer{max: maxReadFile}
	if copies != "" && f.copied {
		folder := filepath.Join(copies, fmt.Sprint(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}

		f.copyAs = filepath.Join(folder, filepath.Base(f.Path))
		file, err := os.OpenFile(f.copyAs, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400|f.mode.Perm()&0o100)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}

	f.Size, err = io.Copy(io.MultiWriter(sum, small, out), io.LimitReader(in, maxApprovedFile+1))
	if err == nil && f.Size > maxApprovedFile {
		err = errReplaced(f.Path)
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if f.Size <= maxShownFile {
		f.content = small.b
	}
	if readable != nil && copies == "" && !f.secret && !f.isText && f.Size == int64(len(small.b)) {
		f.format, f.words = readable(f.Path, small.b)
	}
	return err
}

// boundedBuffer keeps the beginning of the data written to it.
type boundedBuffer struct {
	b   []byte
	max int
}

func (w *boundedBuffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), w.max-len(w.b))]...)
	return len(p), nil
}

// readFolder hashes the content of a folder, within limits: names, types, link targets and file
// contents.
func (b *fileBinder) readFolder(f *namedFile) error {
	root, err := b.writable.OpenRoot(f.Path)
	if err != nil {
		return errReplaced(f.Path)
	}
	defer root.Close()

	sum, entries := sha256.New(), 0
	f.Size = 0
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > maxFolderFiles {
			return errTooLarge
		}

		info, err := root.Lstat(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%d:%s,%s,", len(path), path, info.Mode().Type())
		switch {
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := root.Readlink(filepath.FromSlash(path))
			fmt.Fprintf(sum, "%d:%s,", len(target), target)
			return err
		case !info.Mode().IsRegular():
			return nil
		}

		if f.Size += info.Size(); f.Size > maxFolderBytes {
			return errTooLarge
		}
		in, err := b.writable.Open(filepath.Join(f.Path, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		defer in.Close()

		fmt.Fprintf(sum, "%d:", info.Size())
		_, err = io.CopyN(sum, in, info.Size())
		return err
	})
	if err != nil { // too large, changing or unreadable: no hash, and the owner is told
		f.Size = 0
		return nil
	}

	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return nil
}

var errTooLarge = errors.New("too large")

// missingScript returns an error if the script of a command does not exist, because it could be
// written after the approval.
func (b *fileBinder) missingScript(l commandLine) error {
	for _, word := range Scripts(l.argv) {
		path, err := b.writable.Resolve(b.candidates(mention{path: word})[0])
		switch {
		case err == nil && !b.writable.Covers(path): // in the owner's folders
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return &unapprovableError{fmt.Sprintf("there is no %s to run", text.Visible(word))}
			}
		case err == nil:
			if _, err := b.inspect(path); errors.Is(err, fs.ErrNotExist) {
				return &unapprovableError{fmt.Sprintf("there is no %s, so that nobody could see what is approved; write it first", text.Visible(word))}
			}
		}
	}
	return nil
}

// standing reports whether an approval of these files can hold for later calls. That requires a
// hash of every file.
func (b *fileBinder) standing() bool {
	return !slices.ContainsFunc(b.files, func(f *namedFile) bool { return f.Kind != kindFile || f.SHA256 == "" })
}

// shown describes the files for a person.
func (b *fileBinder) shown() string {
	var out strings.Builder
	for _, f := range b.files {
		out.WriteString("\n" + f.shown())
	}
	if len(b.files) > 0 && !b.standing() {
		out.WriteString("\n(for this call alone: a folder, a link or a large file cannot be approved for good)")
	}
	return out.String()
}

func (f *namedFile) shown() string {
	name := text.Visible(f.written)
	switch {
	case f.Kind == kindLink:
		return fmt.Sprintf("%s is a link to %s", name, text.Visible(f.Target))
	case f.SHA256 == "":
		return fmt.Sprintf("%s is a %s that is too large to be bound: whatever it holds by then", name, f.Kind)
	case f.Kind == kindFolder:
		return fmt.Sprintf("%s is a folder of %s, sha256 %s", name, text.Size(f.Size), f.SHA256)
	}

	head := fmt.Sprintf("%s holds %s, sha256 %s", name, text.Size(f.Size), f.SHA256)
	switch {
	case f.secret:
		return head + ", not shown: by its name it holds secrets"
	case f.words != "":
		return fmt.Sprintf("%s, %s, with this text:%s", head, f.format, indented(text.HeadBytes(f.words, maxShownFile)))
	case f.format != "":
		return head + ", " + f.format
	case f.Size > maxShownFile, !utf8.Valid(f.content):
		return head
	case f.Size == 0:
		return name + " is empty"
	}

	return head + ":" + indented(string(f.content))
}

// indented returns a text with each line indented and invisible characters made visible.
func indented(content string) string {
	var out strings.Builder
	for line := range strings.Lines(content) {
		out.WriteString("\n    " + text.Visible(strings.TrimSuffix(line, "\n")))
	}
	return out.String()
}

// copyOf returns the path of the copy that replaces a mention.
func (b *fileBinder) copyOf(m mention) (string, bool) {
	if m.fixed {
		return "", false
	}

	for _, path := range b.candidates(m) {
		if path, err := b.writable.Resolve(path); err == nil && b.known[path] != nil && b.known[path].copyAs != "" {
			return b.known[path].copyAs, true
		}
	}
	return "", false
}

// linkNeighbours creates links next to a copy, one for each file next to the original. Scripts may
// look for these files.
func (f *namedFile) linkNeighbours(writable nofollow.UntrustedDirs) {
	folder := filepath.Dir(f.Path)
	entries, err := writable.ReadDir(folder) // following a link made since would reveal names in another folder
	if err != nil || len(entries) > maxNeighbours {
		return
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(f.copyAs) {
			_ = os.Symlink(filepath.Join(folder, e.Name()), filepath.Join(filepath.Dir(f.copyAs), e.Name())) // if it fails, the script reports the missing file
		}
	}
}

// approvedFiles holds the files of an approved command, as they were when the command was compared
// with the approval. It is empty for a command without an approval.
type approvedFiles struct{ *fileBinder }

// approvedFiles copies the files that a command names. It refuses the call if the files have
// changed since the approval.
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
	if errors.As(err, new(*unapprovableError)) { // it could be approved before, so the files have changed
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

// commandLine returns the command line with the files replaced by their copies.
func (a approvedFiles) commandLine(l commandLine) (argv []string, script string) {
	if a.fileBinder == nil {
		return l.argv, l.script
	}
	return l.renamed(a.copyOf)
}

// folders returns the additional folders that the program may read.
func (a approvedFiles) folders() []string {
	if a.fileBinder == nil {
		return nil
	}
	return []string{a.copies}
}

// original replaces the paths of copies in a program's output with the paths from the command line.
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
		_ = os.RemoveAll(a.copies) // left to the system's cleanup of temporary files
	}
}
