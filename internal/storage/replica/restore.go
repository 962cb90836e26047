package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/benbjohnson/litestream"
	"github.com/superfly/ltx"
)

// Version is a state of a database that can be restored.
type Version struct {
	TX ltx.TXID
	At time.Time
}

// Versions returns the states that can be restored from a client, oldest first.
func Versions(ctx context.Context, client litestream.ReplicaClient) ([]Version, error) {
	files, err := client.LTXFiles(ctx, 0, 0, true)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	var out []Version
	for files.Next() {
		info := files.Item()
		out = append(out, Version{info.MaxTXID, info.CreatedAt})
	}
	return out, files.Err()
}

// Restore writes the state of a database after transaction tx to a new file.
func Restore(ctx context.Context, client litestream.ReplicaClient, tx ltx.TXID, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	r := litestream.NewReplicaWithClient(nil, client)
	o := litestream.NewRestoreOptions()
	o.OutputPath, o.TXID = to, tx
	if err := r.Restore(ctx, o); err != nil {
		return err
	}
	return os.Chmod(to, 0o600)
}

var quiet = slog.New(slog.DiscardHandler)

// levels is the number of compaction levels. fanIn is the number of files of one level that are
// merged into a file of the next.
const (
	levels = 2
	fanIn  = 64
)

// Compact merges shipped files, so that a restore reads fewer of them. The merged files stay until
// Prune removes them.
func Compact(ctx context.Context, client litestream.ReplicaClient) error {
	c := litestream.NewCompactor(client, quiet)
	for level := 1; level <= levels; level++ {
		newest, err := c.MaxLTXFileInfo(ctx, level)
		if err != nil {
			return err
		}
		files, err := client.LTXFiles(ctx, level-1, newest.MaxTXID+1, false)
		if err != nil {
			return err
		}
		n := 0
		for files.Next() {
			n++
		}
		if err := errors.Join(files.Err(), files.Close()); err != nil {
			return err
		}
		if n < fanIn {
			return nil
		}
		if _, err := c.Compact(ctx, level); err != nil && !errors.Is(err, litestream.ErrNoCompaction) {
			return err
		}
	}
	return nil
}

// Checkpoint merges all files into one snapshot if the newest snapshot is older than age.
func Checkpoint(ctx context.Context, client litestream.ReplicaClient, age time.Duration) error {
	versions, err := Versions(ctx, client)
	if err != nil || len(versions) == 0 {
		return err
	}
	last := versions[len(versions)-1]
	files, err := client.LTXFiles(ctx, litestream.SnapshotLevel, 0, true)
	if err != nil {
		return err
	}
	since := versions[0].At
	for files.Next() {
		if files.Item().MaxTXID >= last.TX {
			return files.Close()
		}
		since = files.Item().CreatedAt
	}
	if err := errors.Join(files.Err(), files.Close()); err != nil || last.At.Sub(since) < age {
		return err
	}

	plan, err := litestream.CalcRestorePlan(ctx, client, last.TX, time.Time{}, quiet)
	if err != nil {
		return err
	}
	var inputs []io.Reader
	for _, info := range plan {
		f, err := client.OpenLTXFile(ctx, info.Level, info.MinTXID, info.MaxTXID, 0, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		inputs = append(inputs, f)
	}
	pr, pw := io.Pipe()
	go func() {
		merge, err := ltx.NewCompactor(pw, inputs)
		if err == nil {
			merge.HeaderFlags = ltx.HeaderFlagNoChecksum
			merge.AllowNonContiguousTXIDs = true // files of different levels may overlap
			err = merge.Compact(ctx)
		}
		pw.CloseWithError(err)
	}()
	_, err = client.WriteLTXFile(ctx, litestream.SnapshotLevel, 1, last.TX, pr)
	pr.CloseWithError(errors.New("nobody reads it"))
	return err
}

// Prune removes files that are only needed for states before the given time. The newest state
// always stays.
func Prune(ctx context.Context, client litestream.ReplicaClient, before time.Time) error {
	snapshots, err := litestream.FindLTXFiles(ctx, client, litestream.SnapshotLevel, true, func(*ltx.FileInfo) (bool, error) { return true, nil })
	if err != nil {
		return err
	}
	var from *ltx.FileInfo // base of the oldest state to keep
	for _, info := range snapshots {
		if !info.CreatedAt.After(before) {
			from = info
		}
	}
	if from == nil {
		return nil
	}

	var gone []*ltx.FileInfo
	for level := range litestream.SnapshotLevel + 1 {
		if level > levels && level != litestream.SnapshotLevel {
			continue
		}
		old, err := litestream.FindLTXFiles(ctx, client, level, true, func(info *ltx.FileInfo) (bool, error) {
			// The file of the snapshot's last transaction stays, because it contains the time.
			return info.MaxTXID < from.MaxTXID, nil
		})
		if err != nil {
			return err
		}
		gone = append(gone, old...)
	}
	return client.DeleteLTXFiles(ctx, gone)
}
