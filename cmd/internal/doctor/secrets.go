package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/plan"
	"rouse/cmd/internal/secret"
)

// wanted returns the secret references of the current configuration and of the one on disk.
func (d *Checker) wanted(now *plan.Setup) []config.SecretRef {
	refs := slices.Concat(now.Config.Secrets.Refs, now.Wanted)
	if d.Serves {
		refs = append(refs, d.WantedSecrets()...)
	}
	return refs
}

// checkSecrets checks the keyring and the secrets that the configuration uses. The remedy for an
// unreadable secret is the command that sets it.
func (d *Checker) checkSecrets(now *plan.Setup) api.Check {
	// Use a new store, because a store remembers that the keyring did not answer.
	store, err := secret.New(secret.Options{Home: d.Home})
	if err != nil {
		return undone("secrets", err)
	}
	places := "the keyring answers"
	if err := store.Reach(); err != nil {
		places = err.Error()
	}
	kept, err := store.List()
	if err != nil {
		return Failed("secrets", err.Error(), "see the message; no secret can be set before it is solved")
	}

	of := map[string][]string{} // by name: the configuration paths that use the secret
	for _, r := range d.wanted(now) {
		if by := cmp.Or(r.Of, r.Path); !slices.Contains(of[r.Name], by) {
			of[r.Name] = append(of[r.Name], by)
		}
	}
	var missing, closed, remedies []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		switch _, _, err := store.Get(name); {
		case errors.Is(err, secret.ErrNotSet):
			missing = append(missing, fmt.Sprintf("%s is not set (%s)", name, strings.Join(of[name], ", ")))
			remedies = append(remedies, "rouse secrets set "+name)
		case err != nil:
			closed = append(closed, fmt.Sprintf("%s cannot be read (%s): %v", name, strings.Join(of[name], ", "), err))
			remedies = append(remedies, "rouse secrets set "+name+" --in file")
		}
	}
	if lacking := append(missing, closed...); len(lacking) > 0 {
		return Failed("secrets", strings.Join(lacking, "; ")+"; "+places, strings.Join(remedies, "; "))
	}
	return Passed("secrets", fmt.Sprintf("%d kept, %d asked for, all can be had; %s", len(kept), len(of), places))
}
