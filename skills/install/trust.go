package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// trustFile is the file of individually trusted skills in the home.
const trustFile = "trusted-skills.json"

// Trust is a skill in an untrusted root that its owner trusts in its current state.
type Trust struct {
	Dir       string    `json:"dir"`  // with links resolved
	Hash      string    `json:"hash"` // see Hash
	TrustedAt time.Time `json:"trusted_at"`
}

// Trusts are the individually trusted skills of a home.
type Trusts []Trust

// ReadTrusts reads the individually trusted skills.
func ReadTrusts(home string) (Trusts, error) {
	return readList[Trust](filepath.Join(home, trustFile), "remove it, and trust the skills again")
}

// Accept implements skills.Root.Accept. It reports whether a skill was trusted and returns an error
// if it has changed since.
func (t Trusts) Accept(dir string) (hash string, ok bool, err error) {
	i := slices.IndexFunc(t, func(t Trust) bool { return t.Dir == dir })
	if i < 0 {
		return "", false, nil
	}
	if err := asTrusted(dir, t[i].Hash); err != nil {
		return "", false, err
	}
	return t[i].Hash, true, nil
}

// asTrusted returns an error if a skill has changed since it was trusted. The error contains a
// remedy.
func asTrusted(dir, hash string) error {
	err := compare(dir, hash)
	if err == nil {
		return nil
	}
	why := "are not those that were trusted"
	if !errors.Is(err, errChanged) {
		why += " (" + err.Error() + ")"
	}
	return fmt.Errorf("the files of the skill in %s %s; look at what has changed, and trust it again with: rouse skills trust %[1]s", dir, why)
}

// TrustSkill trusts a skill in the state that has the given hash. The owner must have seen these
// files.
func TrustSkill(home, dir, hash string) error {
	return changeTrusts(home, dir, &Trust{Dir: dir, Hash: hash, TrustedAt: time.Now().UTC().Truncate(time.Second)})
}

// DistrustSkill removes the trust in a skill and reports whether there was any.
func DistrustSkill(home, dir string) (was bool, err error) {
	all, err := ReadTrusts(home)
	if err != nil || !slices.ContainsFunc(all, func(t Trust) bool { return t.Dir == dir }) {
		return false, err
	}
	return true, changeTrusts(home, dir, nil)
}

// changeTrusts replaces the entry of one folder. If by is nil, it removes the entry.
func changeTrusts(home, dir string, by *Trust) error {
	all, err := ReadTrusts(home)
	if err != nil {
		return err
	}

	all = slices.DeleteFunc(all, func(t Trust) bool { return t.Dir == dir })
	if by != nil {
		all = append(all, *by)
	}

	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	return writeList(filepath.Join(home, trustFile), all, func(t Trust) string { return t.Dir }, 0o600)
}
