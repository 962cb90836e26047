package replica

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rouse/internal/storage/sqlite"
)

// copyBase copies the whole database and records the position of the copy in the log.
func (f *Shipper) copyBase(ctx context.Context) (err error) {
	s, err := sqlite.OpenSnapshot(ctx, f.path)
	if err != nil {
		return err
	}
	taken := false
	defer func() {
		if !taken {
			err = errors.Join(err, s.Close())
		}
	}()
	err = f.db.Turn(ctx, func() error {
		if err := s.Take(ctx); err != nil {
			return err
		}
		l, err := openLog(f.path)
		if errors.Is(err, errNoLog) {
			f.at = position{}
			return nil
		}
		if err != nil {
			return err
		}
		defer l.f.Close()
		f.at, err = l.scan(l.begin(0), map[uint32]int64{})
		return err
	})
	if err != nil {
		return err
	}

	taken = true
	f.lost.Store(false)
	if err := f.replaceKeep(s); err != nil {
		return err
	}
	f.base = f.dropBase()
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return err
	}
	to, err := os.MkdirTemp(filepath.Dir(f.state), "base-")
	if err != nil {
		return err
	}
	file := filepath.Join(to, "copy")
	if err := s.CopyTo(ctx, file, nil); err != nil {
		return errors.Join(err, os.RemoveAll(to))
	}
	f.base, f.end, f.found, f.drained, f.early, f.whole = file, f.at, nil, true, true, true
	if f.lost.Load() {
		f.whole = false
		return errors.New("its log became too large while it was copied")
	}
	return nil
}

func (f *Shipper) dropBase() string {
	if f.base != "" {
		_ = os.RemoveAll(filepath.Dir(f.base)) // the next start removes it
	}
	return ""
}

func (f *Shipper) shipBase(ctx context.Context, at int64) (commit uint32, err error) {
	file, err := os.Open(f.base)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	size, err := readPageSize(f.base)
	if err != nil {
		return 0, err
	}
	pageSize := int(size)
	commit = uint32(info.Size() / size) //nolint:gosec // page counts fit in 32 bits
	numbers := make([]uint32, commit)
	for i := range numbers {
		numbers[i] = uint32(i) + 1 //nolint:gosec // page counts fit in 32 bits
	}

	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(encode(pw, pageSize, commit, f.known.TX+1, at, numbers, func(n uint32, page []byte) error {
			_, err := file.ReadAt(page, int64(n-1)*int64(pageSize))
			return err
		}))
	}()
	_, err = f.client.WriteLTXFile(ctx, 0, f.known.TX+1, f.known.TX+1, pr)
	pr.CloseWithError(errors.New("nobody reads it"))
	return commit, err
}

// readPageSize returns the page size from the header of a database file.
func readPageSize(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()

	var head [18]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return 0, err
	}
	if size := int64(head[16])<<8 | int64(head[17]); size != 1 {
		return max(size, 512), nil // SQLite's minimum
	}
	return 65536, nil
}
