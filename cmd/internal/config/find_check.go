package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rouse/internal/nofollow"
	"rouse/internal/owner"
)

// CheckFound refuses a configuration that nobody named and that somebody else may have put where it was found: its
// file or a folder above can be written by others, or it lies where a configuration nearby lets an agent write or a
// stranger leave files. Who means it names it with --config.
//
// Nearby are the configurations in the folders above, those of homes above, as an agent's default workdir
// lies in one, and the one that the user's own home was started with. Another one, which has another name or lies elsewhere, is not known here. The path is absolute.
func CheckFound(path string, getenv func(string) string) error {
	at, why := path, owner.WritableByOthers(path)
	if real, err := filepath.EvalSymlinks(path); err == nil && why == "" {
		at, why = real, owner.WritableByOthers(real)
	}
	if why != "" {
		mend := owner.Chmod(at)
		if mend != "" {
			mend = "take that right away with: " + mend + "; or, "
		}
		return fmt.Errorf("%s was found and is not taken for the configuration, since it %s; %sif it is yours, name it: --config %s", display(path), why, mend, display(path))
	}

	for _, other := range nearby(path, getenv) {
		writer, err := writerOf(other, path, getenv)
		switch {
		case err != nil:
			return fmt.Errorf("%s was found and is not taken for the configuration: whether agents may write there is up to %s, which cannot be read (%w); if it is yours, name it: --config %s", display(path), display(other), err, display(path))
		case writer != "":
			return fmt.Errorf("%s was found and is not taken for the configuration: %s; if it is yours, name it: --config %s, or go to the folder of the configuration that you mean", display(path), writer, display(path))
		}
	}
	return nil
}

// nearby are the user's other configurations that are likely to know the folder of one. What others can write is none
// of them: it says nothing of the user's agents.
func nearby(path string, getenv func(string) string) (out []string) {
	add := func(file string) {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && file != path && !slices.Contains(out, file) && owner.WritableByOthers(file) == "" {
			out = append(out, file)
		}
	}
	adopted := func(home string) {
		if stamp, err := readPlain(filepath.Join(home, AdoptedFile)); err == nil && filepath.IsAbs(string(stamp)) {
			add(string(stamp))
		}
	}

	if home, err := DefaultHome(getenv); err == nil {
		adopted(home)
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		add(filepath.Join(dir, fileName))
		adopted(dir)
	}
	return out
}

// AdoptedFile holds, in a home, the path of the configuration that it was first started with.
const AdoptedFile = "config-path"

// writerOf says who may write in the folder of a path by another configuration, "" when nobody may. An error means
// that it says nothing that could be understood.
func writerOf(other, path string, getenv func(string) string) (string, error) {
	cfg := &Config{}
	d := newDecoder(getenv)
	root, err := d.read(other, LoadOptions{Getenv: getenv}, cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || root == nil {
		return "", errors.Join(err, d.verdict(cfg))
	}

	for _, p := range cfg.places() {
		if holds(nofollow.NewBoundary(p.folder), filepath.Dir(path)) || holds(nofollow.NewBoundary(p.folder), path) {
			at := d.place(p.key)
			at.File = display(at.File)
			return fmt.Sprintf("%s %s (%s)", p.who, p.folder, at), nil
		}
	}
	return "", nil
}
