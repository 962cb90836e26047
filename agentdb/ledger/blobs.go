package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rouse/agentdb/sqlite"
	"rouse/internal/atomicfile"
)

// maxInline is the largest value, in bytes, that stays in the database.
const maxInline = 64 << 10

// blobMark begins the text that refers to a value in a file. No JSON text begins like it.
const blobMark = "blob:sha256:"

// pack moves a large value to a file named by its content, which is on disk before the
// row that refers to it. It returns the text to store and the hash to refer to.
func (l *Ledger) pack(text string) (stored, hash string, err error) {
	if len(text) <= maxInline || l.blobs == "" {
		return text, "", nil
	}

	sum := sha256.Sum256([]byte(text))
	hash = hex.EncodeToString(sum[:])
	path := l.blobPath(hash)
	// The size is enough: a file that was cut off is shorter, and is written again.
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(text)) {
		return blobMark + hash, hash, nil
	}
	if err := writeBlob(path, text); err != nil {
		return "", "", fmt.Errorf("cannot keep a large value of the record: %w", err)
	}

	return blobMark + hash, hash, nil
}

func (l *Ledger) blobPath(hash string) string { return filepath.Join(l.blobs, hash[:2], hash) }

// writeBlob makes the file and its name durable before a row refers to it, and the name of its
// folder too, which may be new.
func writeBlob(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	err := atomicfile.Stream(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		return err
	}

	return atomicfile.SyncFolder(filepath.Dir(dir))
}

func (l *Ledger) unpack(stored string) (json.RawMessage, error) {
	hash, ok := strings.CutPrefix(stored, blobMark)
	if !ok {
		return json.RawMessage(stored), nil
	}

	text, err := os.ReadFile(l.blobPath(hash))
	if err != nil {
		return nil, fmt.Errorf("a large value of the record is missing: %w; restore the home from a backup", err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != hash {
		return nil, fmt.Errorf("a large value of the record is damaged: %s; restore the home from a backup", l.blobPath(hash))
	}

	return text, nil
}

// writeEntries writes entries whose values may be large, fenced by a, all or none of them.
func (l *Ledger) writeEntries(ctx context.Context, a Attempt, entries []Entry) error {
	// From the file to the row that refers to it, prune must not take the file for an orphan.
	l.blobsInUse.RLock()
	defer l.blobsInUse.RUnlock()

	stored, hashes := make([]string, len(entries)), make([]string, len(entries))
	for i, e := range entries {
		err := e.err
		if err == nil {
			stored[i], hashes[i], err = l.pack(string(e.value))
		}
		if err != nil {
			return err
		}
	}

	return l.do(ctx, func(tx *sqlite.Tx) error {
		job, err := l.runningJob(tx, a)
		if err != nil {
			return err
		}

		for i, e := range entries {
			// Retention finds out from these rows when no run needs the file any more.
			if hashes[i] != "" {
				if _, err := tx.Exec(`insert into blobs (hash, run) values ($1, $2) on conflict do nothing`, hashes[i], a.Run); err != nil {
					return err
				}
			}
			if err := e.write(tx, a, job, stored[i]); err != nil {
				return err
			}
		}

		return nil
	})
}

// runningJob is the job of an attempt that is running; any other is fenced.
func (l *Ledger) runningJob(tx *sqlite.Tx, a Attempt) (job string, err error) {
	err = tx.QueryRow(`select job from runs where id = $1 and attempt = $2 and state = 'running'`+l.forUpdate, a.Run, a.Number).Scan(&job)
	if errors.Is(err, sql.ErrNoRows) {
		// The query above is the usual, short one; this one says what is wrong.
		if _, err = l.checkFence(tx, a); err == nil {
			err = fmt.Errorf("attempt %d of run %d: %w", a.Number, a.Run, ErrFenced)
		}
	}
	return job, err
}

// removeBlobs removes the files of hashes that no run refers to any more.
func (l *Ledger) removeBlobs(hashes []string) error {
	for _, h := range hashes {
		if err := os.Remove(l.blobPath(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
