package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// trustFile is the file in the home that says which skills were trusted where they lie.
const trustFile = "trusted-skills.json"

// Trust is a skill that its owner has trusted as it was: in a folder that is not trusted as a whole.
type Trust struct {
	Dir       string    `json:"dir"`  // with links resolved
	Hash      string    `json:"hash"` // see Hash
	TrustedAt time.Time `json:"trusted_at"`
}

// Trusts are the skills that were trusted by themselves, as a home knows them.
type Trusts []Trust

// ReadTrusts reads the skills that were trusted by themselves.
func ReadTrusts(home string) (Trusts, error) {
	return readList[Trust](filepath.Join(home, trustFile), "remove it, and trust the skills again")
}

// Accept is for skills.Root: whether a skill was trusted, and is as it was then.
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

// asTrusted checks that a skill is what was trusted. The error says what to do.
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

// TrustSkill trusts a skill as it is: with the hash of its files, which its owner was shown.
func TrustSkill(home, dir, hash string) error {
	return changeTrusts(home, dir, &Trust{Dir: dir, Hash: hash, TrustedAt: time.Now().UTC().Truncate(time.Second)})
}

// DistrustSkill ends that trust, and says whether there was any.
func DistrustSkill(home, dir string) (was bool, err error) {
	all, err := ReadTrusts(home)
	if err != nil || !slices.ContainsFunc(all, func(t Trust) bool { return t.Dir == dir }) {
		return false, err
	}
	return true, changeTrusts(home, dir, nil)
}

// changeTrusts replaces what is known of one folder.
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
