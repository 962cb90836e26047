package replicate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/internal/atomicfile"
	"rouse/internal/storage/replica"
	"rouse/internal/text"
)

const (
	markerName = "rouse-replica.json"
	format     = 1
	maxMarker  = 64 << 10 // bytes
)

// marker identifies the home a place belongs to.
type marker struct {
	Format int       `json:"format"`
	ID     string    `json:"id"` // random ID of the home; backups do not include it
	Home   string    `json:"home"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
}

// RefusedError is returned if a home cannot be copied to or restored from a place. Its message is
// meant for the owner.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// own returns the marker of this home. It creates the home's ID if necessary.
func own(home string) (marker, error) {
	host, err := os.Hostname()
	if err != nil {
		return marker{}, err
	}
	path := filepath.Join(home, "replica", "id")
	id, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id = []byte(rand.Text() + "\n")
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = atomicfile.Write(path, id, 0o600)
		}
	}
	return marker{Format: format, ID: string(bytes.TrimSpace(id)), Home: home, Host: host, Since: time.Now().UTC()}, err
}

// readMarker reads the marker of a place. It returns fs.ErrNotExist if the place does not belong to
// a home.
func readMarker(ctx context.Context, s replica.Store) (m marker, err error) {
	r, err := s.Get(ctx, markerName, 0, 0)
	if err != nil {
		return m, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, maxMarker))
	if err != nil {
		return m, err
	}
	if json.Unmarshal(content, &m) != nil || m.ID == "" {
		return m, refuse("its %s is none; name an empty place", markerName)
	}
	if m.Format != format {
		return m, refuse("it is of the format %d and this rouse knows %d; use the rouse that made it, or name an empty place", m.Format, format)
	}
	return m, nil
}

// claim writes this home's marker to an empty place. It returns an error if the place belongs to
// another home.
func claim(ctx context.Context, s replica.Store, home string) error {
	mine, err := own(home)
	if err != nil {
		return err
	}
	m, err := readMarker(ctx, s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		there, err := s.List(ctx, "", "")
		if err != nil {
			return err
		}
		if len(there) > 0 {
			return refuse("there is something in it that is no copy of a home (%s); name an empty folder, or another prefix", text.Truncate(there[0].Name, 100))
		}
		content, err := json.MarshalIndent(mine, "", " ")
		if err != nil {
			return err
		}
		return s.Put(ctx, markerName, bytes.NewReader(content), int64(len(content)))
	case err != nil:
		return err
	case m.ID == mine.ID && m.Home == mine.Home && m.Host == mine.Host:
		return nil
	}
	return refuse("the home %s on %s is copied there since %s, and two homes never share a place (a home that was restored, moved or copied is another one); name another, empty one",
		text.Truncate(m.Home, 200), text.Truncate(m.Host, 100), m.Since.Local().Format(time.DateTime+" MST"))
}
