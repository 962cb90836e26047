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

// OnOutput sets what is called with every file that is written, before anybody can see it under its
// name. An error, which is the host's, keeps the file from being written.
func (r *Roots) OnOutput(announce func(context.Context, Output) error) { r.onOutput = announce }

// Announce reports that the file temp, in the same root, is about to be renamed to the path of the
// handle. The file must be complete. Every tool that writes a file calls this right before the rename:
// no watch can then see the file before it is on record as the job's own.
func (p *FileHandle) Announce(ctx context.Context, temp string) error {
	if err := p.recordIdentity(ctx, temp); err != nil || p.onOutput == nil {
		return err
	}

	f, err := p.Open(temp)
	if err != nil {
		return fmt.Errorf("what is written to %s cannot be read back: %w", p.shown, err)
	}
	defer f.Close()

	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		return fmt.Errorf("what is written to %s cannot be read back: %w", p.shown, err)
	}

	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("what is written to %s cannot be read back: %w", p.shown, err)
	}

	// Only the folder's links are resolved: the rename does not follow a link at the name itself.
	path := filepath.Join(p.Name(), p.Rel)
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}

	return p.onOutput(ctx, Output{filepath.Join(folder, filepath.Base(path)), hex.EncodeToString(hash.Sum(nil)), size, info.ModTime()})
}

// AnnounceAs records that the file at the absolute path now is about to be renamed to rel, relative to the path of the
// handle; "." is that path itself. The caller has hashed the content.
func (p *FileHandle) AnnounceAs(ctx context.Context, now, rel, hash string, info fs.FileInfo) error {
	folder, err := filepath.EvalSymlinks(p.Name())
	if err != nil {
		return fmt.Errorf("the folder of %s cannot be found: %w", p.shown, err)
	}

	path := filepath.Join(folder, p.Rel, rel)
	if p.onWrite != nil {
		if err := p.onWrite(ctx, ledger.Place{Kind: ledger.PlaceFile, Name: path, ID: fileID(now)}); err != nil {
			return err
		}
	}
	if p.onOutput == nil {
		return nil
	}
	return p.onOutput(ctx, Output{path, hash, info.Size(), info.ModTime()})
}
