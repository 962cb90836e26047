package condition

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"rouse/internal/nofollow"
)

// ContentHash returns the SHA-256 of a file, in hexadecimal.
func ContentHash(ctx context.Context, b nofollow.UntrustedDirs, path string) (string, error) {
	f, err := b.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()

	h := sha256.New()
	if _, err := io.Copy(h, &cancelableFile{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

type cancelableFile struct {
	ctx context.Context
	f   *os.File
}

func (s *cancelableFile) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.f.Read(p)
}
