package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rouse/internal/atomicfile"
)

// trustFile is the file in the home that says which skills were trusted where they lie.
const trustFile = "trusted-skills.json"

// Trust is a skill that its owner has trusted as it was: in a folder that is not trusted as a whole.
type Trust struct {
	Dir       string    `json:"dir"`  // with links resolved
	Hash      string    `json:"hash"` // see Hash
	TrustedAt time.Time `json:"trusted_at"`
}

type trustList struct {
	Version int     `json:"version"`
	Skills  []Trust `json:"skills"` // by folder
}

// Trusts are the skills that were trusted by themselves, as a home knows them.
type Trusts []Trust

// ReadTrusts reads those of a home.
func ReadTrusts(home string) (Trusts, error) {
	path := filepath.Join(home, trustFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	var l trustList
	if err := json.Unmarshal(text, &l); err != nil || l.Version != 1 {
		return nil, fmt.Errorf("%s is damaged, or of another version of rouse; remove it, and trust the skills again", path)
	}
	return l.Skills, nil
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
	why := "are not those that were trusted"
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, errChanged):
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

	slices.SortFunc(all, func(a, b Trust) int { return strings.Compare(a.Dir, b.Dir) })
	text, err := json.MarshalIndent(trustList{1, all}, "", "  ")
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(home, trustFile), append(text, '\n'), 0o600)
}
