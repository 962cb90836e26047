package calendars

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/internal/atomicfile"
	"rouse/internal/owner"
	"rouse/scheduler/calendar"
	"rouse/scheduler/schedule"
)

// Folder is the directory of the home that holds calendars.
const Folder = "calendars"

// Source is the configuration of a calendar.
type Source struct {
	Name, Address string
	Near          bool // the server may be on this machine or its network
	Refresh       time.Duration
}

// Store holds copies of calendars in a directory of the home.
type Store struct{ dir string }

// NewStore returns the store of a home.
func NewStore(home string) Store { return Store{filepath.Join(home, Folder)} }

// Kept is the local copy of a calendar.
type Kept struct {
	Entries   []schedule.Entry `json:"-"`
	FetchedAt time.Time        `json:"fetched_at,omitzero"` // time of the last successful fetch; zero if there was no fetch
	ChangedAt time.Time        `json:"changed_at,omitzero"` // time the content last changed
	TriedAt   time.Time        `json:"tried_at,omitzero"`
	Problem   string           `json:"problem,omitempty"` // error of the last fetch; "" if it succeeded
}

// Load reads the copy of a calendar and expands its repetitions around now. If the copy cannot be
// read, Problem is the reason.
func (s Store) Load(from Source, now time.Time) Kept {
	k, err := s.record(from)
	if err == nil && !k.FetchedAt.IsZero() {
		var text []byte
		if text, err = os.ReadFile(s.path(from, ".ics")); err == nil {
			k.Entries, err = calendar.Parse(text, now)
		}
	}
	if err != nil {
		return Kept{TriedAt: k.TriedAt, Problem: fmt.Sprintf("the copy that is kept cannot be read: %v", err)}
	}
	return k
}

// Due returns the time of the next fetch.
func (k Kept) Due(from Source) time.Time {
	switch {
	case k.TriedAt.IsZero():
		return time.Time{}
	case k.Problem != "":
		return k.TriedAt.Add(min(retryAfter, from.Refresh))
	}
	return k.FetchedAt.Add(from.Refresh)
}

// retryAfter is the maximum delay before a failed fetch is retried.
const retryAfter = 10 * time.Minute

// path returns the path of a calendar's file. Names contain no dots, so removeOthers cannot match
// another calendar's files.
func (s Store) path(from Source, ext string) string {
	sum := sha256.Sum256([]byte(from.Address))
	return filepath.Join(s.dir, from.Name+"."+hex.EncodeToString(sum[:8])+ext)
}

// record reads the metadata of a copy. The times are zero if the calendar was never fetched.
func (s Store) record(from Source) (r Kept, err error) {
	text, err := os.ReadFile(s.path(from, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Kept{}, fmt.Errorf("%s: %w", s.path(from, ".json"), err)
	}
	return r, nil
}

// Keep stores the result of a fetch: either the text or the error. It reports whether the content
// changed.
func (s Store) Keep(from Source, now time.Time, text []byte, failure error) (changed bool, err error) {
	if failure == nil {
		if _, failure = calendar.Parse(text, now); failure != nil {
			failure = fmt.Errorf("what its server sent is no calendar that can be used: %w", failure)
		}
	}
	if err := os.MkdirAll(s.dir, owner.ApplyUmask(0o700)); err != nil {
		return false, err
	}

	r, err := s.record(from)
	if err != nil {
		r = Kept{} // the file is damaged and will be replaced
	}
	r.TriedAt, r.Problem = now.UTC(), ""
	if failure != nil {
		r.Problem = failure.Error()
		return false, s.note(from, r)
	}

	before, err := os.ReadFile(s.path(from, ".ics"))
	if changed = err != nil || r.FetchedAt.IsZero() || string(before) != string(text); changed {
		r.ChangedAt = now.UTC()
		if err := atomicfile.Write(s.path(from, ".ics"), text, 0o600); err != nil {
			return false, err
		}
	}
	r.FetchedAt = now.UTC()
	if err := s.note(from, r); err != nil {
		return false, err
	}
	return changed, s.removeOthers(from)
}

// removeOthers removes copies from previous addresses of the calendar.
func (s Store) removeOthers(from Source) error {
	all, err := filepath.Glob(filepath.Join(s.dir, from.Name+".*"))
	for _, path := range all {
		if path != s.path(from, ".ics") && path != s.path(from, ".json") {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

func (s Store) note(from Source, r Kept) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(from, ".json"), append(text, '\n'), 0o600)
}
