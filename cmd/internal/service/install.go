package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"rouse/internal/atomicfile"
	"rouse/internal/owner"
)

// Plan holds the files of an installation as they are and as they would be.
type Plan struct {
	Spec Spec
	File string
	Text string
	Old  string // current contents; "" if there is no file
	// Installed means that the same description is already installed and enabled.
	Installed bool
	// Unasked is the error from querying the manager. If it is set, Install fails.
	Unasked error
}

// NewPlan prepares an installation. It returns an error if the installation would replace files
// rouse did not write for this home.
//
// trusted lists files that control the daemon's behavior. Other users must not be able to write to
// them: they could act as the user at each login.
func NewPlan(ctx context.Context, m Manager, s Spec, trusted []string) (p Plan, err error) {
	p.Spec = s
	if p.Text, err = m.Render(s); err != nil {
		return p, err
	}
	if p.File, err = m.File(s); err != nil {
		return p, err
	}
	if p.Old, err = readDescription(p.File); err != nil {
		return p, err
	}
	if err := checkTrusted(append([]string{s.Program, p.File}, trusted...)); err != nil {
		return p, err
	}

	other, err := Recorded(s.Home)
	if err != nil {
		return p, err
	}
	if _, err := os.Lstat(other.File); other.Name != "" && other.Name != s.Name && err == nil {
		return p, fmt.Errorf("the home %s is the service %s already (%s), and two daemons cannot serve one home; first: rouse service uninstall", s.Home, other.Name, other.File)
	}

	state, unasked := m.State(ctx, s)
	p.Unasked = unasked
	if p.Old == "" && state.Known {
		return p, fmt.Errorf("%s knows a service %s that rouse has not installed; choose another name with --name", m.Title(), s.Name)
	}
	if err := p.ours(); err != nil {
		return p, err
	}

	p.Installed = p.Old == p.Text && state.Enabled
	return p, nil
}

// ours returns an error if the existing file was not written for this home.
func (p Plan) ours() error {
	switch {
	case p.Old == "":
		return nil
	case strings.Contains(p.Old, p.Spec.marker()):
		return nil
	case strings.Contains(p.Old, writtenBy):
		return fmt.Errorf("%s is the service of another home; choose another name with --name", p.File)
	}
	return fmt.Errorf("%s was not written by rouse, and is left as it is; move it away, or choose another name with --name", p.File)
}

// readDescription returns the contents of a file, or "" if it does not exist. It does not follow
// symbolic links, which systemd uses to mask units.
func readDescription(file string) (string, error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no plain file, as where a unit is masked; remove it (systemctl --user unmask), or choose another name with --name", file)
	}

	text, err := os.ReadFile(file)
	if err == nil && len(text) == 0 {
		return "", fmt.Errorf("%s is empty, as an installation leaves it that was cut off; remove it, and install again", file)
	}
	return string(text), err
}

// checkTrusted returns an error if other users can change or replace a file.
func checkTrusted(files []string) error {
	for _, file := range files {
		at := file
		// If a file does not exist yet, check the directory it will be created in.
		for {
			if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
				break
			}
			at = filepath.Dir(at)
		}

		why := owner.WritableByOthers(at)
		if real, err := filepath.EvalSymlinks(at); err == nil && why == "" {
			at, why = real, owner.WritableByOthers(real)
		}
		if why == "" {
			continue
		}
		mend := ""
		if chmod := owner.Chmod(at); chmod != "" {
			mend = "; take that right away with: " + chmod
		}
		return fmt.Errorf("no service is installed, for somebody else could decide what it does: %s %s%s", at, why, mend)
	}
	return nil
}

// Diff returns the difference between the installed and the new description.
func (p Plan) Diff() string {
	return strings.TrimSpace(udiff.Unified("installed", "new", p.Old, p.Text))
}

// Install installs the service. It replaces a different existing description only if force is set,
// and restores it if the installation fails.
func (p Plan) Install(m Manager, force bool) error {
	if p.Unasked != nil {
		return p.Unasked // before anything is written
	}
	if p.Old != "" && p.Old != p.Text && !force {
		return fmt.Errorf("the service %s is installed already, and %s says otherwise than what would be written:\n%s\nnothing was changed; write it again with --force", p.Spec.Name, p.File, p.Diff())
	}

	if p.Old != "" {
		if err := m.Uninstall(p.Spec); err != nil {
			return fmt.Errorf("the service as it was cannot be taken away: %w", err)
		}
	}
	if err := m.Install(p.Spec, p.Text); err != nil {
		return errors.Join(fmt.Errorf("%s did not take the service: %w", m.Title(), err), p.putBack())
	}

	record := Record{Name: p.Spec.Name, File: p.File, Program: p.Spec.Program, Config: p.Spec.Config, InstalledAt: time.Now().UTC()}
	if err := record.write(p.Spec.Home); err != nil {
		return fmt.Errorf("the service is installed, and the home could not note its name: %w", err)
	}
	return nil
}

// putBack restores the state before a failed installation.
func (p Plan) putBack() error {
	if p.Old == "" {
		return remove(p.File)
	}
	return atomicfile.Write(p.File, []byte(p.Old), 0o644)
}

// Uninstall stops and removes a service. In the home, only the record of the service is removed.
func Uninstall(ctx context.Context, m Manager, s Spec) error {
	file, err := m.File(s)
	if err != nil {
		return err
	}
	old, err := readDescription(file)
	if err != nil {
		return err
	}
	if err := (Plan{Spec: s, File: file, Old: old}).ours(); err != nil {
		return err
	}

	state, err := m.State(ctx, s)
	if err != nil {
		return err
	}
	if state.Running {
		if err := m.Stop(s); err != nil {
			return fmt.Errorf("the service %s cannot be stopped: %w", s.Name, err)
		}
	}
	if old != "" {
		if err := m.Uninstall(s); err != nil {
			return fmt.Errorf("the service %s cannot be taken away: %w", s.Name, err)
		}
	}
	return remove(recordFile(s.Home))
}

// Record holds the contents of HOME/service.json, which identifies the service of a home.
type Record struct {
	Name        string    `json:"name"`
	File        string    `json:"file"`
	Program     string    `json:"program"`
	Config      string    `json:"config"`
	InstalledAt time.Time `json:"installed_at"`
}

func recordFile(home string) string { return filepath.Join(home, "service.json") }

// Recorded returns the record of a home's service. Its name is empty if no service is recorded.
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
		err = CheckName(r.Name) // it becomes part of a path
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

// remove removes a file if it exists.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
