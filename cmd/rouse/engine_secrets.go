package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
	"rouse/cmd/internal/secret"
	"rouse/cmd/internal/web"
)

// wanted are the places that ask for secrets: those of the configuration in force, and of what is
// on disk where that cannot come into force, which may be for want of one.
func (d *daemon) wanted(now *setup) []config.SecretRef {
	refs := slices.Concat(now.config.SecretRefs(), now.wanted)
	if d.reloads != nil {
		refs = append(refs, d.reloads.wants()...)
	}
	return refs
}

// checkSecrets says which stores of secrets answer, and which of the secrets that are asked for
// cannot be had, with the command that sets them (OSL-22).
func (d *daemon) checkSecrets(now *setup) web.Check {
	store, err := secret.New(secret.Options{Home: d.home.dir})
	if err != nil {
		return web.Check{Name: "secrets", Detail: err.Error()}
	}
	c := web.Check{Name: "secrets", OK: true}
	places := "the keyring answers"
	if err := store.Reach(); err != nil {
		places = err.Error()
	}
	kept, err := store.List()
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, err.Error(), "see the message; no secret can be set before it is solved"
		return c
	}
	var names, missing, closed, remedies []string
	of := map[string][]string{}
	for _, r := range d.wanted(now) {
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
		if by := orElse(r.Of, r.Path); !slices.Contains(of[r.Name], by) {
			of[r.Name] = append(of[r.Name], by)
		}
	}
	slices.Sort(names)
	for _, name := range names {
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
		c.OK, c.Detail, c.Remedy = false, strings.Join(lacking, "; ")+"; "+places, strings.Join(remedies, "; ")
		return c
	}
	c.Detail = fmt.Sprintf("%d kept, %d asked for, all can be had; %s", len(kept), len(names), places)
	return c
}
