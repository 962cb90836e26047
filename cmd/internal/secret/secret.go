// Package secret stores the values of `secret:NAME` references and other collections of secrets.
//
// # Design
//
// Get searches the system's keyring, the file secrets.age of the home, and the environment variable
// ROUSE_SECRET_NAME, in this order. Set stores a secret in the keyring if it answers, otherwise in
// the file, and removes it from the other one.
//
// A keyring cannot list its entries and may block, for example until the user unlocks it. The names
// are therefore also stored in secrets.json, and a call waits at most two seconds.
//
// The file is encrypted with the passphrase in ROUSE_SECRETS_PASSPHRASE, if that is set. Otherwise
// a key is generated in secrets.key, next to the file. The key protects the values if only one of
// the two files leaks, as from a backup. It does not protect them from programs that run as the
// owner; a passphrase that is not stored on disk does so better.
package secret

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gofrs/flock"

	"rouse/internal/owner"
)

// Source is a place where a secret is stored.
type Source string

// Sources, in search order.
const (
	InKeyring     Source = "keyring"
	InFile        Source = "file"
	InEnvironment Source = "environment"
)

// ErrNotSet is returned if a secret is not stored anywhere.
var ErrNotSet = errors.New("the secret is not set")

// MaxValue is the maximum length of a value, in bytes.
const MaxValue = 64 << 10

// secretsCollection is the name of the collection of secret:NAME values.
const secretsCollection = "secrets"

// place returns the path of one of the collection's files.
func (s *Store) place(extension string) string { return filepath.Join(s.home, s.collection+extension) }

// named reports whether the collection holds secret:NAME values. Only these have restricted names
// and can come from the environment.
func (s *Store) named() bool { return s.collection == secretsCollection }

// nameForm matches valid names. They appear in YAML, in placeholders and in environment variables.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Options holds the settings of a Store.
type Options struct {
	Home string
	// Collection is the base name of the files; the default is "secrets". Only the default
	// collection reads the environment.
	Collection string
	Getenv     func(string) string // nil means os.Getenv
	Keyring    Keyring             // nil means the system's keyring, if there is one
}

// Store holds the secrets of one home. It is not safe for concurrent use.
type Store struct {
	home       string
	collection string
	getenv     func(string) string
	keyring    Keyring // nil if there is none
	keyringErr error   // reason why the keyring is no longer used
	work       int     // work factor of scrypt, as a power of two

	loaded bool // file holds the contents on disk
	file   map[string]string
	names  *index
}

// New returns a store. It does not read anything yet.
func New(o Options) (*Store, error) {
	if o.Home == "" {
		return nil, errors.New("secret: a home is needed")
	}

	if err := owner.CheckHome(o.Home); err != nil {
		return nil, err
	}

	s := &Store{home: o.Home, collection: cmp.Or(o.Collection, secretsCollection), getenv: o.Getenv, keyring: o.Keyring, work: workFactor}
	if s.getenv == nil {
		s.getenv = os.Getenv
	}

	if s.keyring == nil {
		s.keyring = systemKeyring(s.getenv)
	}
	return s, nil
}

// CheckName returns an error if a name is not valid.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a secret: letters, digits, _, - and . are allowed, up to 63, beginning with a letter or digit", name)
	}
	return nil
}

// Variable returns the environment variable of a secret.
func Variable(name string) string {
	return "ROUSE_SECRET_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Get returns a secret and its source. It returns ErrNotSet if the secret is not set, or another
// error if its source cannot be read.
func (s *Store) Get(name string) (string, Source, error) {
	names, err := s.index()
	if err != nil {
		return "", "", err
	}

	if slices.Contains(names.Keyring, name) {
		value, err := s.fromKeyring(names.ID, name)
		// If the keyring lost the secret, it may be elsewhere. After other errors the file may hold
		// an old value, so it is not read.
		if !errors.Is(err, ErrNotSet) {
			return value, InKeyring, err
		}
	}

	file, err := s.values()
	if err != nil {
		return "", "", err
	}
	if value, ok := file[name]; ok {
		return value, InFile, nil
	}
	if value := s.getenv(Variable(name)); value != "" && s.named() {
		return value, InEnvironment, nil
	}

	return "", "", ErrNotSet
}

// Set stores a secret in the given source, or in the best one if in is empty. It also returns why
// the keyring was not used.
func (s *Store) Set(name, value string, in Source) (Source, string, error) {
	if err := CheckName(name); err != nil && s.named() {
		return "", "", err
	}

	switch {
	case value == "":
		return "", "", errors.New("the value is empty")
	case len(value) > MaxValue:
		return "", "", fmt.Errorf("the value has more than %d bytes; at most so many are kept", MaxValue)
	case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
		return "", "", errors.New("the value is no text; encode it, as with base64")
	}

	unlock, err := s.lock()
	if err != nil {
		return "", "", err
	}
	defer unlock()

	names, err := s.index()
	if err != nil {
		return "", "", err
	}

	why := ""
	if in != InFile {
		if err := s.toKeyring(names.ID, name, value); err == nil {
			return InKeyring, "", errors.Join(s.recordInIndex(names, name, true), s.removeFromFile(name))
		} else if why = err.Error(); in == InKeyring {
			return "", "", err
		}
	}

	file, err := s.values()
	if err != nil {
		return "", "", err
	}

	file[name] = value
	if err := s.save(file); err != nil {
		return "", "", err
	}

	if slices.Contains(names.Keyring, name) {
		// If this fails, the keyring still is not asked for the secret, because the index no longer
		// lists it.
		_ = s.deleteFromKeyring(names.ID, name)
		return InFile, why, s.recordInIndex(names, name, false)
	}

	return InFile, why, nil
}

// Remove deletes a secret and returns the sources it was removed from. It does not change the
// environment.
func (s *Store) Remove(name string) (from []Source, err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	names, err := s.index()
	if err != nil {
		return nil, err
	}

	if slices.Contains(names.Keyring, name) {
		if err := s.deleteFromKeyring(names.ID, name); err != nil && !errors.Is(err, ErrNotSet) {
			return nil, err
		}
		if err := s.recordInIndex(names, name, false); err != nil {
			return nil, err
		}
		from = append(from, InKeyring)
	}

	file, err := s.values()
	if err != nil {
		return from, err
	}

	if _, ok := file[name]; ok {
		from = append(from, InFile)
		return from, s.removeFromFile(name)
	}

	if len(from) == 0 {
		return nil, ErrNotSet
	}

	return from, nil
}

// List returns the secrets in the keyring and the file, with their sources.
func (s *Store) List() (map[string]Source, error) {
	names, err := s.index()
	if err != nil {
		return nil, err
	}

	file, err := s.values()
	if err != nil {
		return nil, err
	}

	out := map[string]Source{}
	for name := range file {
		out[name] = InFile
	}

	// Last, because Get prefers the keyring.
	for _, name := range names.Keyring {
		out[name] = InKeyring
	}

	return out, nil
}

// removeFromFile removes a secret from the file.
func (s *Store) removeFromFile(name string) error {
	file, err := s.values()
	if err != nil {
		return err
	}
	// Do not write: that would create a key for an empty file.
	if _, ok := file[name]; !ok {
		return nil
	}

	delete(file, name)
	return s.save(file)
}

// lock creates the home, locks its secrets against other processes, and discards cached values.
func (s *Store) lock() (func(), error) {
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the home folder %s: %w; choose another with --home", s.home, err)
	}
	if err := owner.CheckHome(s.home); err != nil {
		return nil, err
	}

	l := flock.New(s.place(".lock"), flock.SetPermissions(0o600))
	if err := l.Lock(); err != nil {
		return nil, fmt.Errorf("the secrets in %s cannot be locked: %w", s.home, err)
	}

	s.loaded, s.names = false, nil
	return func() { _ = l.Unlock() }, nil // the lock ends with the process at the latest
}
