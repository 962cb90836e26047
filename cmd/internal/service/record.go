package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"rouse/internal/atomicfile"
)

// Record is what a home knows of its service, in HOME/service.json: commands find it by that, whatever its name is.
type Record struct {
	Name        string    `json:"name"`
	File        string    `json:"file"`
	Program     string    `json:"program"`
	Config      string    `json:"config"`
	InstalledAt time.Time `json:"installed_at"`
}

func recordFile(home string) string { return filepath.Join(home, "service.json") }

// Recorded is the service of a home; its name is "" where there is none.
func Recorded(home string) (Record, error) {
	var r Record
	text, err := os.ReadFile(recordFile(home))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil {
		err = CheckName(r.Name) // it goes into a path
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s cannot be read: %w; delete it, and install the service again", recordFile(home), err)
	}
	return r, nil
}

func (r Record) write(home string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = atomicfile.Write(recordFile(home), append(text, '\n'), 0o600)
	}
	return err
}

func forget(home string) error {
	if err := os.Remove(recordFile(home)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
