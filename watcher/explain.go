package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/ledger/claim"
	"rouse/internal/text"
	"rouse/watcher/fsys"
	"rouse/watcher/settle"
	"rouse/watcher/tree"
)

// The verdicts of a watch about a file.
const (
	VerdictTaken   = "taken"    // a run has taken it
	VerdictWaits   = "waits"    // it waits for the condition in Reason
	VerdictLeftOut = "left_out" // the watch does not select it
	VerdictNone    = "none"     // no run has taken it yet
	VerdictWhole   = "whole"    // the watch is about the whole folder
)

// Verdict describes how a watch handles a file, and the reason.
type Verdict struct {
	Job, Path string
	Verdict   string
	Reason    string
	Since     time.Time // start of the wait of a waiting file
	// Run took the file last, or failed with the same bytes. Zero if no run has taken it.
	Run     int64
	Outcome domain.Outcome // outcome of the run; "" until it ends
}

// maxExplained is the maximum number of files explained per folder.
const maxExplained = 500

// Explain returns the verdict of each watch about a file or about each file in a folder. waits
// holds the waiting files of a running watcher, by job. For paths outside the watched folders it
// returns no verdict and does not reveal whether they exist. It returns an error if a watch is
// invalid or the ledger cannot be read.
func Explain(ctx context.Context, l *ledger.Ledger, watches []Watch, waits map[string][]settle.WaitingFile, path string) ([]Verdict, error) {
	watches, err := validated(watches)
	if err != nil {
		return nil, err
	}

	var out []Verdict
	w := newWatcher(Options{Ledger: l})
	for _, f := range sortedFolders(w.foldersOf(watches)) {
		f.root = f.resolveLinks(f.Path)
		f.skipFolders()

		at := f.resolveLinks(filepath.Dir(path))
		named := filepath.Join(at, filepath.Base(path)) // a link is explained itself, not its target
		if real := f.resolveLinks(path); real == f.root {
			named = real
		}
		if _, in := fsys.RelInside(f.root, named); !in && named != f.root {
			continue
		}

		for _, file := range f.filesAt(named) {
			v, err := f.explain(ctx, file, waits[f.Job])
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
	}
	return out, nil
}

func sortedFolders(folders map[string]*folder) []*folder {
	var out []*folder
	for _, f := range folders {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b *folder) int { return strings.Compare(a.Job, b.Job) })
	return out
}

// filesAt returns the files in a folder, or the path itself if it is not a folder.
func (p *place) filesAt(named string) []string {
	info, err := p.Boundary.Stat(named)
	if err != nil || !info.IsDir() {
		return []string{named}
	}

	root, err := p.Boundary.OpenRoot(named)
	if err != nil {
		return []string{named}
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return []string{named}
	}
	defer dir.Close()

	var out []string
	entries, _ := dir.ReadDir(maxExplained)
	for _, e := range entries {
		if !e.IsDir() {
			out = append(out, filepath.Join(named, e.Name()))
		}
	}
	slices.Sort(out)
	return out
}

// explain returns the watch's verdict about one file in its folder.
func (p *place) explain(ctx context.Context, file string, waits []settle.WaitingFile) (Verdict, error) {
	v := Verdict{Job: p.Job, Path: file, Verdict: VerdictLeftOut}
	rel, _ := fsys.RelInside(p.root, file)
	info, err := os.Lstat(file)
	if v.Reason = p.leavesOut(file, rel, info); v.Reason != "" {
		return v, nil
	}

	if i := slices.IndexFunc(waits, func(w settle.WaitingFile) bool { return w.Path == file }); i >= 0 {
		v.Verdict, v.Reason, v.Since, v.Run = VerdictWaits, waits[i].Why, waits[i].Since, waits[i].Run
		return v, nil
	}
	if p.Mode == ModeConverge {
		v.Verdict, v.Reason = VerdictWhole, "the job is about the folder as a whole (mode: converge): rouse why "+p.Job
		return v, nil
	}

	claims, claimErr := p.w.ledger.Claims.OnPath(ctx, p.Job, filepath.ToSlash(file))
	if claimErr != nil {
		return v, claimErr
	}
	if errors.Is(err, fs.ErrNotExist) {
		return v.gone(claims), nil
	}

	// The content is not read. A claim with the same size and time is assumed to be the file's
	// claim.
	i := slices.IndexFunc(claims, func(c claim.Status) bool {
		return err == nil && c.Size == info.Size() && c.ModTime.UnixMilli() == info.ModTime().UnixMilli()
	})
	switch {
	case err != nil:
		v.Verdict, v.Reason = VerdictWaits, "it cannot be read: "+err.Error()
	case i >= 0:
		if v = v.claimed(claims[i]); claims[i].After == claim.AfterUndone {
			v.Reason += fmt.Sprintf("; drop it again, or run it with: rouse run %s --file %s --again", p.Job, text.ShellWord(file))
		}
	case p.Collect.When != "":
		return p.explainCollected(ctx, v, info)
	case p.Existing == ExistingIgnore:
		v.Verdict, v.Reason = VerdictNone, "no run has taken it as it is: it settles, or was there before the job (existing: ignore)"
	default:
		v.Verdict, v.Reason = VerdictNone, "no run has taken it as it is: it settles, or no daemon has looked yet"
	}
	return v, nil
}

// explainCollected describes when a collected file is handed over.
func (p *place) explainCollected(ctx context.Context, v Verdict, info fs.FileInfo) (Verdict, error) {
	st, _, err := p.w.ledger.Watches.State(ctx, p.Job)
	if err != nil {
		return v, err
	}
	mem, known := p.loadPreexisting(st)
	before := func(l tree.File) bool {
		return fsys.JoinPath(p.root, l.Path) == v.Path && l.Size == info.Size() && l.Modified == fsys.StampOf(info).Modified
	}
	if p.Existing == ExistingIgnore && known && slices.ContainsFunc(mem.Last, before) {
		v.Verdict, v.Reason = VerdictNone, "it was there before the job (existing: ignore)"
		return v, nil
	}
	at := p.NextHandover(st, time.Now())
	v.Verdict, v.Since = VerdictWaits, info.ModTime()
	v.Reason = fmt.Sprintf("it is handed over with all files that arrive before %s (collect: %s)", at.Format("Mon 2006-01-02 15:04 MST"), p.Collect.When)
	if !at.After(time.Now()) {
		v.Reason = fmt.Sprintf("it is handed over when a daemon has read the folder; this was due at %s (collect: %s)", at.Format("Mon 2006-01-02 15:04 MST"), p.Collect.When)
	}
	return v, nil
}

// leavesOut returns the reason why the watch does not select a file, or "" if it does.
func (p *place) leavesOut(file, rel string, info fs.FileInfo) string {
	for dir := range p.skippedDirs {
		if _, in := fsys.RelInside(dir, file); in {
			return fmt.Sprintf("the folder %s is watched by another job, or files are moved there after their runs", dir)
		}
	}

	switch {
	case rel == "":
		return "it is the watched folder"
	case info != nil && info.Mode()&fs.ModeSymlink != 0 && !p.FollowSymlinks:
		return "it is a link, and links are not followed (follow_symlinks)"
	case info != nil && info.IsDir():
		return "it is a folder"
	case info != nil && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0:
		return "it is no regular file"
	case !p.Recursive && path.Dir(rel) != ".":
		return "it is in a folder of the watched one (recursive: false)"
	}
	return p.Rejects(rel).String()
}

// gone returns the verdict about a file that does not exist.
func (v Verdict) gone(claims []claim.Status) Verdict {
	v.Verdict, v.Reason = VerdictNone, "there is no such file, and no run has taken one"
	if len(claims) > 0 {
		v = v.claimed(claims[len(claims)-1])
		v.Reason += "; it is not there any more"
	}
	return v
}

// claimed returns the verdict that follows from a claim of the file.
func (v Verdict) claimed(c claim.Status) Verdict {
	v.Verdict, v.Run, v.Outcome = VerdictTaken, c.Run, c.Outcome
	switch {
	case c.After == claim.AfterBack:
		v.Verdict, v.Reason = VerdictWaits, BackText(c.Run)
	case c.Run == 0:
		v.Verdict, v.Reason = VerdictNone, "a run began without it, for it was gone or had changed"
	case c.Outcome == "":
		v.Reason = fmt.Sprintf("run %d has it", c.Run)
	case c.After == claim.AfterUndone:
		v.Reason = fmt.Sprintf("run %d processed it and was undone", c.Run)
	default:
		v.Reason = fmt.Sprintf("run %d had it: %s", c.Run, strings.ReplaceAll(string(c.Outcome), "_", " "))
	}

	if c.Dest != "" && c.After == claim.AfterDone {
		v.Reason += ", and it went to " + c.Dest
	}
	return v
}
