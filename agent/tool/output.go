package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"rouse/agentdb/ledger"
)

// Output is a file that a run is about to rename to its final name.
type Output struct {
	Path    string // absolute, with the links resolved of what leads to it
	Hash    string // SHA-256, hexadecimal
	Size    int64
	ModTime time.Time
}

// OnOutput sets the function that is called with every file that is written, before anybody can see
// it under its name. Its error, which is the host's, keeps the file from being written.
func (r *Roots) OnOutput(announce func(context.Context, Output) error) { r.onOutput = announce }

// Announce reports that the complete file temp, in the same root, is about to be renamed to the
// path of the handle. Every tool that writes a file calls it right before the rename: no watch can
// then see the file before it is on record as the job's own.
func (p *FileHandle) Announce(ctx context.Context, temp string) error {
	path, err := p.finalPath()
	if err != nil {
		return err
	}
	// The temporary file lies beside the file that it becomes.
	if err := p.recordWrite(ctx, path, filepath.Join(filepath.Dir(path), filepath.Base(temp))); err != nil || p.roots.onOutput == nil {
		return err
	}

	fail := func(err error) error {
		return fmt.Errorf("what is written to %s cannot be read back: %w", p.shown, err)
	}
	f, err := p.Open(temp)
	if err != nil {
		return fail(err)
	}
	defer f.Close()

	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return fail(err)
	}
	info, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	return p.roots.onOutput(ctx, Output{path, hex.EncodeToString(hash.Sum(nil)), size, info.ModTime()})
}

// finalPath resolves the links of the folder, but not one at the name itself: a rename replaces it.
func (p *FileHandle) finalPath() (string, error) {
	folder, err := filepath.EvalSymlinks(filepath.Join(p.Name(), filepath.Dir(p.Rel)))
	if err != nil {
		return "", fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}
	return filepath.Join(folder, filepath.Base(p.Rel)), nil
}

// recordWrite tells OnWrite that the file at the path now is about to get another path.
func (p *FileHandle) recordWrite(ctx context.Context, path, now string) error {
	if p.roots.onWrite == nil {
		return nil
	}
	return p.roots.onWrite(ctx, ledger.Place{Kind: ledger.PlaceFile, Name: path, ID: fileID(now)})
}

// AnnounceAs reports that the file at the absolute path now is about to be renamed to rel, relative
// to the path of the handle; "." is that path. The caller has hashed the content.
func (p *FileHandle) AnnounceAs(ctx context.Context, now, rel, hash string, info fs.FileInfo) error {
	folder, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}
	path := filepath.Join(folder, p.Rel, rel)
	if err := p.recordWrite(ctx, path, now); err != nil || p.roots.onOutput == nil {
		return err
	}
	return p.roots.onOutput(ctx, Output{path, hash, info.Size(), info.ModTime()})
}
