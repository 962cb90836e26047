package install

import (
	"errors"
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
		return asTrusted(s.Dir, s.TrustedHash)
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

	return pinned[i].check(root)
}

// check checks that an installed skill is what was installed. The error says what to do.
func (p Pinned) check(root string) error {
	err := compare(filepath.Join(root, p.Name), p.Hash)
	var refused *RefusedError
	switch {
	case errors.Is(err, errChanged):
		return fmt.Errorf("the files of the skill %s are not those that were installed from %s; if you changed them, say rouse skills pin %[1]s, else install it again with --replace", p.Name, p.Source)
	case errors.As(err, &refused):
		return fmt.Errorf("the skill %s contains %q, which was not shown when it was installed from %s: %s; use no such tool in %s, and install the skill again with --replace, or rouse skills remove %[1]s", p.Name, refused.Path, p.Source, refused.Why, filepath.Join(root, p.Name))
	case err != nil:
		return fmt.Errorf("the installed skill %s cannot be checked: %w", p.Name, err)
	}
	return nil
}
