package install

import (
	"fmt"
	"path/filepath"
	"slices"

	"rouse/skills"
)

// Verify checks that an installed skill is what was installed, and that one which was trusted by itself is what it was
// then. It is called when a skill is used, and
// not when it is discovered, so that discovering a thousand of them reads their frontmatter alone, and
// nothing can change in between. The error says what to do.
func Verify(s *skills.Skill) error {
	// What lies beside it says nothing here: whoever changes the skill could change that as well.
	if s.TrustedHash != "" {
		if hash, err := Hash(s.Dir); err != nil || hash != s.TrustedHash {
			return notAsTrusted(s.Dir)
		}
		return nil
	}

	root := filepath.Dir(s.Dir)
	pinned, err := Installed(root)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(pinned, func(p Pinned) bool { return p.Name == filepath.Base(s.Dir) })
	if i < 0 {
		return nil // the owner put it there
	}

	changed, err := pinned[i].Changed(root)
	switch {
	case err != nil:
		return fmt.Errorf("the installed skill %s cannot be checked: %w", s.Name, err)
	case changed:
		return fmt.Errorf("the files of the skill %s are not those that were installed from %s; if you changed them, say rouse skills pin %[1]s, else install it again with --replace", pinned[i].Name, pinned[i].Source)
	}

	return nil
}
