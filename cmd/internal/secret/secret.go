// Package secret keeps the values behind `secret:NAME`.
//
// # Design
//
// A secret is in the keyring of the system where there is one that answers, else in the file
// secrets.age of the home, else in the environment as ROUSE_SECRET_NAME: that is the order in
// which it is looked for, and setting one leaves it in one of the first two places alone.
//
// A keyring cannot be asked what it holds, and may wait for a person to unlock it, or for ever.
// So the names are in secrets.json beside the file, and no call waits longer than two seconds.
//
// The file is encrypted with the key in secrets.key, which is made with it, or with the
// passphrase in ROUSE_SECRETS_PASSPHRASE where that is set. The key lies beside the file: it
// keeps the values from whoever sees the one without the other, in a backup or a listing, and not
// from programs that run as the owner. A passphrase that is not kept on the disk does more.
package secret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gofrs/flock"
)

// Source is where a secret is kept.
type Source string

// The sources, in the order in which they are asked.
const (
	InKeyring     Source = "keyring"
	InFile        Source = "file"
	InEnvironment Source = "environment"
)

// ErrNotSet says that a secret is kept nowhere.
var ErrNotSet = errors.New("the secret is not set")

// MaxValue is the longest value, in bytes.
const MaxValue = 64 << 10

// nameForm is that of names: they stand in YAML, in placeholders, and after ROUSE_SECRET_.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Options say where a store is.
type Options struct {
	Home    string
	Getenv  func(string) string // nil: os.Getenv
	Keyring Keyring             // nil: the system's, if there is one
}

// Store is the secrets of one home, for one goroutine.
type Store struct {
	home       string
	getenv     func(string) string
	keyring    Keyring // nil: there is none
	keyringErr error   // why the keyring is not asked any more
	work       int     // of scrypt, as a power of two

	loaded bool // whether file is what is on the disk
	file   map[string]string
	names  *index
}

// New opens a store; nothing is read yet.
func New(o Options) (*Store, error) {
	if o.Home == "" {
		return nil, errors.New("secret: a home is needed")
	}

	s := &Store{home: o.Home, getenv: o.Getenv, keyring: o.Keyring, work: workFactor}
	if s.getenv == nil {
		s.getenv = os.Getenv
	}

	if s.keyring == nil {
		s.keyring = systemKeyring(s.getenv)
	}
	return s, nil
}

// CheckName says what is wrong with a name.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of a secret: letters, digits, _, - and . are allowed, up to 63, beginning with a letter or digit", name)
	}
	return nil
}

// Variable is the environment variable of a secret.
func Variable(name string) string {
	return "ROUSE_SECRET_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(name))
}

// Get finds a secret. The error is ErrNotSet, or says why a place that has it does not give it.
func (s *Store) Get(name string) (string, Source, error) {
	names, err := s.index()
	if err != nil {
		return "", "", err
	}

	if slices.Contains(names.Keyring, name) {
		value, err := s.fromKeyring(names.ID, name)
		if !errors.Is(err, ErrNotSet) { // removed there by hand, it may be elsewhere
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
	if value := s.getenv(Variable(name)); value != "" {
		return value, InEnvironment, nil
	}

	return "", "", ErrNotSet
}

// Set keeps a secret in a place, the best one when that is "", and in no other. It returns why
// the keyring was not taken when it was not, "" else.
func (s *Store) Set(name, value string, in Source) (Source, string, error) {
	if err := CheckName(name); err != nil {
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
		// One that the keyring does not forget is not asked for any more.
		_ = s.deleteFromKeyring(names.ID, name)
		return InFile, why, s.recordInIndex(names, name, false)
	}

	return InFile, why, nil
}

// Remove forgets a secret, and returns where it was kept. The environment is not changed.
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

// List is where each secret is kept that is kept in the keyring or the file.
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

	for _, name := range names.Keyring {
		out[name] = InKeyring
	}

	return out, nil
}

// removeFromFile takes a secret out of the file.
func (s *Store) removeFromFile(name string) error {
	file, err := s.values()
	if err != nil {
		return err
	}
	if _, ok := file[name]; !ok {
		return nil
	}

	delete(file, name)
	return s.save(file)
}

// lock makes the home, and keeps other processes from changing its secrets. What was read of
// them before is read again.
func (s *Store) lock() (func(), error) {
	if err := os.MkdirAll(s.home, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the home folder %s: %w; choose another with --home", s.home, err)
	}

	l := flock.New(filepath.Join(s.home, "secrets.lock"), flock.SetPermissions(0o600))
	if err := l.Lock(); err != nil {
		return nil, fmt.Errorf("the secrets in %s cannot be locked: %w", s.home, err)
	}

	s.loaded, s.names = false, nil
	return func() { _ = l.Unlock() }, nil // it goes with the process at the latest
}
