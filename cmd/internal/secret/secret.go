// Package secret stores the values behind `secret:NAME`, and other collections of what is as secret.
//
// # Design
//
// A secret is in the keyring of the system if there is one that answers, else in the file
// secrets.age of the home, else in the environment as ROUSE_SECRET_NAME. They are searched in this
// order, and setting a secret leaves it in only one of the first two.
//
// A keyring cannot be asked what it holds, and may block until a person unlocks it, or for ever.
// So the names are in secrets.json beside the file, and no call waits longer than two seconds.
//
// The file is encrypted with the key in secrets.key, which is generated with it, or with the
// passphrase in ROUSE_SECRETS_PASSPHRASE if that is set. The key lies beside the file: it protects
// the values from whoever gets only one of the two, as in a backup, but not from programs that run
// as the owner. A passphrase that is not stored on the disk protects them better.
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

// Source is where a secret is stored.
type Source string

// The sources, in the order in which they are asked.
const (
	InKeyring     Source = "keyring"
	InFile        Source = "file"
	InEnvironment Source = "environment"
)

// ErrNotSet reports that a secret is stored nowhere.
var ErrNotSet = errors.New("the secret is not set")

// MaxValue is the longest value, in bytes.
const MaxValue = 64 << 10

// secretsCollection are the values behind secret:NAME.
const secretsCollection = "secrets"

// place is a file of the collection in the home.
func (s *Store) place(extension string) string { return filepath.Join(s.home, s.collection+extension) }

// named reports whether its values have plain names, and may come from the environment.
func (s *Store) named() bool { return s.collection == secretsCollection }

// nameForm is what names look like: they appear in YAML, in placeholders, and after ROUSE_SECRET_.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Options say where a store reads and writes.
type Options struct {
	Home string
	// Collection is the name of the files, by default secrets. Only those may come from the environment.
	Collection string
	Getenv     func(string) string // nil: os.Getenv
	Keyring    Keyring             // nil: the system's, if there is one
}

// Store has the secrets of one home. It is for one goroutine.
type Store struct {
	home       string
	collection string
	getenv     func(string) string
	keyring    Keyring // nil: there is none
	keyringErr error   // why the keyring is no longer asked
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

// CheckName says what is wrong with a name, nil if nothing is.
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

// Get finds a secret. The error is ErrNotSet, or says why the place that has it could not be read.
func (s *Store) Get(name string) (string, Source, error) {
	names, err := s.index()
	if err != nil {
		return "", "", err
	}

	if slices.Contains(names.Keyring, name) {
		value, err := s.fromKeyring(names.ID, name)
		// It may have been removed and still be elsewhere. After other errors, the file's value may be old.
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

// Set stores a secret in one place, the best one by default. It returns why not in the keyring.
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
		// If the keyring does not delete it, it is still no longer asked for it: the index says so.
		_ = s.deleteFromKeyring(names.ID, name)
		return InFile, why, s.recordInIndex(names, name, false)
	}

	return InFile, why, nil
}

// Remove deletes a secret, and returns where it was stored. The environment is not changed.
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

// List says where each secret is stored, of those in the keyring or the file.
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

	// Last, because the keyring comes first in Get.
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
	// Nothing to write, which would create a key for an empty file.
	if _, ok := file[name]; !ok {
		return nil
	}

	delete(file, name)
	return s.save(file)
}

// lock creates the home and locks its secrets for other processes. It drops what was read before.
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
	return func() { _ = l.Unlock() }, nil // released with the process at the latest
}
