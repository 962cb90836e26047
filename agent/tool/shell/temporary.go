package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rouse/agent/sandbox"
	"rouse/agent/tool"
	"rouse/internal/atomicfile"
	"rouse/internal/fspath"
	"rouse/internal/nofollow"
	"rouse/internal/owner"
	"rouse/internal/text"
)

// The temporary places of a command, within its own folder.
const (
	homeFolder = "home" // its HOME
	tempFolder = "tmp"  // its TMPDIR; on tier A also its /tmp and /dev/shm
)

// inventory maps the paths of files and links in the folders that a command may write to their
// stamps.
type inventory map[string]stamp

// stamp identifies a version of a file.
type stamp struct {
	inode   uint64 // zero if unknown
	size    int64
	written int64 // ns since 1970
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{inodeOf(info), info.Size(), info.ModTime().UnixNano()}
}

func (v inventory) add(path string, info fs.FileInfo) { v[path] = stampOf(info) }

// leftover is a file or link that a command left in a temporary place.
type leftover struct {
	rel string // relative to the command's folder: tmp/x, home/x
	stamp
}

// isState reports whether it is a file that programs keep for themselves, such as a cache.
func (l leftover) isState() bool {
	name, inHome := strings.CutPrefix(l.rel, homeFolder+string(filepath.Separator))
	return inHome && strings.HasPrefix(name, ".")
}

// shown returns the path as the command knew it.
func (l leftover) shown(tier sandbox.Tier) string {
	place, rel, _ := strings.Cut(filepath.ToSlash(l.rel), "/")
	switch {
	case place == homeFolder:
		return "~/" + rel
	case tier == sandbox.TierNamespaces:
		return "/tmp/" + rel
	}
	return "$TMPDIR/" + rel
}

// Kept describes kept files from the temporary places of a command. They are kept because the
// command may have moved them out of a folder that it may write.
type Kept struct {
	Folder string `json:"folder"` // absolute path of kept-N in the folder that lost files; contains home and tmp
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
}

// temporaries are the temporary places of a command.
type temporaries struct {
	own   string // folder of the command
	began int64  // ns since 1970
	guard *gitGuard
	roots *tool.Roots // nil in Recover
	// mounted are the files that were mounted for the command. On tier A, a mounted file below /tmp
	// leaves an empty file.
	mounted []string
}

// settle keeps or discards the files in the temporary places. If a folder that the command could
// write has lost files, they may have been moved there, possibly within an archive. Then all files
// are kept in that folder, except unrelated state of programs. Otherwise they are discarded.
func (t temporaries) settle(ctx context.Context) (kept *Kept, discarded []leftover, err error) {
	all, err := t.leftovers()
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}

	root, lost, err := t.lost()
	if err != nil {
		return nil, nil, err
	}

	var keep []leftover
	for _, l := range all {
		moved := slices.ContainsFunc(lost, func(s stamp) bool { return s.size == l.size && s.written == l.written })
		switch {
		case moved || root != nil && !l.isState():
			keep = append(keep, l)
		case !l.isState():
			discarded = append(discarded, l)
		}
	}
	if len(keep) == 0 {
		return nil, discarded, nil
	}

	if kept, err = t.keep(ctx, root, keep); err != nil {
		err = fmt.Errorf("%s that a command left in temporary places, and that may have been moved there, could not be put into %s: %w; they lie in %s until that is tried again, at the next start",
			text.Plural(len(keep)-kept.Files, "file"), root.Name(), err, t.own)
	}
	if kept.Files == 0 {
		kept = nil
	}
	return kept, discarded, err
}

// leftovers lists the files and links in the temporary places.
func (t temporaries) leftovers() (out []leftover, err error) {
	places, err := openGuard(nofollow.UntrustedDirs{}, filepath.Join(t.own, homeFolder), filepath.Join(t.own, tempFolder))
	if err != nil {
		return nil, fmt.Errorf("the temporary places of a command cannot be opened: %w", err)
	}
	defer places.close()

	err = places.walk(gitWalk{
		opening: true, shallow: true,
		file: func(path string, info fs.FileInfo) {
			one := leftover{strings.TrimPrefix(path, t.own+string(filepath.Separator)), stampOf(info)}
			data := info.Mode().IsRegular() || info.Mode().Type() == fs.ModeSymlink
			if data && (one.size > 0 || !slices.Contains(t.mounted, one.shown(sandbox.TierNamespaces))) {
				out = append(out, one)
			}
		},
		found: func(_ *gitWalk, rel string, _ []fs.DirEntry) (string, error) { return rel, nil },
	})
	if err != nil {
		return nil, fmt.Errorf("the temporary places of a command cannot be searched: %w", err)
	}
	return out, nil
}

// lost returns the files missing from the folders that the command could write. root is the first
// folder that lost a file, or nil. After a crash the missing files are unknown, and root is the
// first folder.
func (t temporaries) lost() (root *os.Root, lost []stamp, err error) {
	switch {
	case t.guard.before == nil && len(t.guard.roots) == 0:
		return nil, nil, fmt.Errorf("none of the folders is there in which a command could write that left files in %s", t.own)
	case t.guard.before == nil:
		return t.guard.roots[0], nil, nil
	}

	now := inventory{}
	err = t.guard.walk(gitWalk{opening: true, file: now.add, found: func(w *gitWalk, rel string, _ []fs.DirEntry) (string, error) {
		if _, owners := t.guard.owners[filepath.Join(w.root.Name(), rel)]; owners {
			return "", nil // the command could not change it
		}
		return rel, nil
	}})
	if err != nil {
		return nil, nil, err
	}

	// A file with a new name was moved within the folders.
	renamed := map[stamp]bool{}
	for path, s := range now {
		if t.guard.before[path] != s {
			renamed[s] = true
		}
	}

	for path, s := range t.guard.before {
		if is, there := now[path]; there && t.isSame(path, s, is) || renamed[s] {
			continue
		}
		lost = append(lost, s)
		if at := t.guard.rootOf(path); root == nil || at.Name() < root.Name() {
			root = at
		}
	}
	return root, lost, nil
}

// isSame reports whether the file at a path is the one from before, possibly with new content. The
// inode alone is not enough, because a new file may reuse the inode of a removed one.
func (t temporaries) isSame(path string, before, now stamp) bool {
	if before == now {
		return true
	}
	born := tool.PlaceOf(path).ID.Born
	return before.inode == now.inode && born != 0 && born < t.began
}

// rootOf returns the root that contains a path.
func (g *gitGuard) rootOf(path string) *os.Root {
	return g.roots[slices.IndexFunc(g.roots, func(root *os.Root) bool { return fspath.Within(path, root.Name()) })]
}

// keepTime limits the time for keeping files. Files on another disk have to be copied, and sparse
// files may be larger than the data written.
const keepTime = 30 * time.Second

// keep moves leftovers into a new folder of a root. It works only through open folders, because
// other commands may write there at the same time.
func (t temporaries) keep(ctx context.Context, root *os.Root, all []leftover) (*Kept, error) {
	from, err := os.OpenRoot(t.own)
	if err != nil {
		return &Kept{}, err
	}
	defer from.Close()

	name, to, err := makeFolder(root, "kept")
	if err != nil {
		return &Kept{}, err
	}
	defer to.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, keepTime, fmt.Errorf("it takes longer than %s", keepTime))
	defer cancel()

	k := &Kept{Folder: filepath.Join(root.Name(), name)}
	for _, l := range all {
		if err := t.move(ctx, from, to, l.rel); err != nil {
			for _, empty := range []string{filepath.Join(name, homeFolder), filepath.Join(name, tempFolder), name} {
				_ = root.Remove(empty) // fails for a folder that contains kept files, which is intended
			}
			return k, err
		}
		k.Files, k.Bytes = k.Files+1, k.Bytes+l.size
	}
	return k, nil
}

// makeFolder creates a folder with the first free number at the end of its name.
func makeFolder(in *os.Root, what string) (name string, folder *os.Root, err error) {
	for n := 1; ; n++ {
		name = fmt.Sprintf("%s-%d", what, n)
		if err = in.Mkdir(name, 0o700); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", nil, err
	}

	if folder, err = nofollow.OpenBelow(in, name); err != nil {
		return "", nil, err
	}
	if err := folder.Chmod(".", owner.ApplyUmask(0o777)); err != nil {
		return "", nil, errors.Join(err, folder.Close())
	}
	return name, folder, nil
}

// move moves a file or link into the folder for kept files. On failure, the file is in one of the
// two places.
func (t temporaries) move(ctx context.Context, from, kept *os.Root, rel string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	to, err := nofollow.MakeBelow(kept, filepath.Dir(rel), owner.ApplyUmask(0o755))
	if err != nil {
		return err
	}
	defer to.Close()

	name := filepath.Base(rel)
	info, err := from.Lstat(rel)
	if err != nil {
		return err
	}

	temp := atomicfile.TempName(name)
	if moveFile(from, rel, to, temp) != nil { // for example, because the target is on another disk
		if err := copyFile(ctx, from, rel, info, to, temp); err != nil {
			return err
		}
	}

	if info.Mode().IsRegular() {
		err = t.announce(ctx, to, name, temp)
	}
	return errors.Join(err, to.Rename(temp, name))
}

// copyFile does the same as moveFile for a target on any disk. It copies a file with its mode and
// time, or a link, and removes the original.
func copyFile(ctx context.Context, from *os.Root, rel string, info fs.FileInfo, to *os.Root, name string) error {
	if info.Mode().Type() == fs.ModeSymlink {
		target, err := from.Readlink(rel)
		if err == nil {
			err = to.Symlink(target, name)
		}
		if err != nil {
			return err
		}
		return from.Remove(rel)
	}

	in, err := openAny(from, rel)
	if err != nil {
		return err
	}
	defer in.Close()

	out, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, contextReader{ctx, in})
	err = errors.Join(err, out.Sync(), out.Chmod(info.Mode().Perm()), out.Close())
	if err == nil {
		err = to.Chtimes(name, info.ModTime(), info.ModTime())
	}
	if err != nil {
		return errors.Join(err, to.Remove(name))
	}
	return from.Remove(rel)
}

// contextReader is a reader that returns the error of its context once the context ends.
type contextReader struct {
	ctx context.Context
	in  io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.in.Read(p)
}

// openAny opens a file, even if a program has made it unreadable. It does not block on a pipe.
func openAny(in *os.Root, rel string) (*os.File, error) {
	file, err := in.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) && in.Chmod(rel, 0o600) == nil {
		file, err = in.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	return file, err
}

// announce records a file as the run's own output before the file gets its name, so that it does
// not trigger a job.
func (t temporaries) announce(ctx context.Context, in *os.Root, as, temp string) error {
	if t.roots == nil {
		return nil
	}

	p, err := t.roots.Resolve(filepath.Join(in.Name(), as), true)
	if err != nil {
		return nil //nolint:nilerr // a name that no tool writes, such as .env
	}
	defer p.Close()

	rel, err := filepath.Rel(p.Name(), filepath.Join(in.Name(), temp))
	if err != nil {
		return err
	}
	return p.Announce(ctx, rel)
}

// LeftoverWarnings describes how the files of a command were handled, with paths relative to
// workdir.
func LeftoverWarnings(workdir string, ended Ended) []string {
	return append(temporaryWarnings(workdir, ended), disarmedWarnings(workdir, ended.Disarmed)...)
}
func temporaryWarnings(workdir string, ended Ended) (out []string) {
	const most = 5
	if ended.Unkept != nil {
		out = append(out, text.Visible(ended.Unkept.Error()))
	}

	if k := ended.Kept; k != nil {
		out = append(out, fmt.Sprintf("files are gone from where this command may write, and it left %s in places that are temporary (/tmp, /dev/shm, TMPDIR, HOME): so that nothing that was moved is lost, they are kept in %s",
			text.Plural(k.Files, "file"), text.Visible(fspath.Shorten(workdir, k.Folder))))
	}

	if n := len(ended.discarded); n > 0 {
		var names []string
		for _, l := range ended.discarded[:min(n, most)] {
			names = append(names, fmt.Sprintf("%s (%d bytes)", text.Visible(l.shown(ended.Tier)), l.size))
		}
		if n > most {
			names = append(names, fmt.Sprintf("%d more", n-most))
		}
		out = append(out, "these files were in a place that is temporary, and are gone: "+strings.Join(names, ", ")+"; write what is to stay into the working folder")
	}

	return out
}
