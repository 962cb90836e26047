package secret

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/zalando/go-keyring"

	"rouse/internal/atomicfile"
)

// Keyring is the secret store of the system. Get and Delete may return keyring.ErrNotFound.
type Keyring interface {
	Get(service, user string) (string, error)
	Set(service, user, password string) error
	Delete(service, user string) error
}

const (
	service     = "rouse"
	keyringWait = 2 * time.Second
)

// system is the Keyring of this operating system.
type system struct{}

func (system) Get(service, user string) (string, error) { return keyring.Get(service, user) }
func (system) Set(service, user, value string) error    { return keyring.Set(service, user, value) }
func (system) Delete(service, user string) error        { return keyring.Delete(service, user) }

// systemKeyring returns the system's keyring. It returns nil if there is no session bus, because a
// request would start one.
func systemKeyring(getenv func(string) string) Keyring {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" || getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return system{}
	}

	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "bus")); err == nil {
			return system{}
		}
	}
	return nil
}

// withKeyring calls do with a timeout. After a timeout, the keyring is not used again.
func (s *Store) withKeyring(do func(Keyring) error) error {
	switch {
	case s.keyring == nil:
		return errors.New("this session has no keyring")
	case s.keyringErr != nil:
		return s.keyringErr
	}

	// The library has no timeout. The channel is buffered so that a late answer does not leak the
	// goroutine.
	done := make(chan error, 1)
	go func() { done <- do(s.keyring) }()

	select {
	case err := <-done:
		switch {
		case errors.Is(err, keyring.ErrNotFound):
			return ErrNotSet
		case err != nil:
			return fmt.Errorf("the keyring of this system cannot be used: %w", err)
		}
		return nil
	case <-time.After(keyringWait):
		s.keyringErr = fmt.Errorf("the keyring of this system gave no answer within %s; unlock it", keyringWait)
		return s.keyringErr
	}
}

// Reach returns nil if the keyring answers, or an error with the reason.
func (s *Store) Reach() error {
	// Any name works: "not set" is an answer too.
	if _, err := s.fromKeyring("reach", "none"); err != nil && !errors.Is(err, ErrNotSet) {
		return err
	}
	return nil
}

func (s *Store) fromKeyring(id, name string) (string, error) {
	var value string
	err := s.withKeyring(func(k Keyring) error {
		got, err := k.Get(service, id+"/"+name)
		value = got
		return err
	})
	if err != nil {
		return "", err // do not read value: a late answer may still write to it
	}

	return value, nil
}

func (s *Store) toKeyring(id, name, value string) error {
	return s.withKeyring(func(k Keyring) error { return k.Set(service, id+"/"+name, value) })
}

func (s *Store) deleteFromKeyring(id, name string) error {
	return s.withKeyring(func(k Keyring) error { return k.Delete(service, id+"/"+name) })
}

// index lists the secrets of this home that are in the keyring. ID is the prefix of their names
// there. It is random, so that a home can be moved and two homes can have secrets of the same name.
type index struct {
	ID      string   `json:"id"`
	Keyring []string `json:"keyring"`
}

func (s *Store) indexFile() string { return s.place(".json") }

func (s *Store) index() (*index, error) {
	if s.names != nil {
		return s.names, nil
	}

	text, err := os.ReadFile(s.indexFile())
	switch names := (&index{ID: rand.Text()}); {
	case errors.Is(err, fs.ErrNotExist):
		s.names = names
	case err != nil:
		return nil, fmt.Errorf("the list of secrets cannot be read: %w", err)
	default:
		if err := json.Unmarshal(text, names); err != nil {
			return nil, fmt.Errorf("the list of secrets %s is damaged: %w; remove it, and set the secrets again", s.indexFile(), err)
		}
		s.names = names
	}

	return s.names, nil
}

// recordInIndex records whether a secret is in the keyring.
func (s *Store) recordInIndex(names *index, name string, has bool) error {
	if slices.Contains(names.Keyring, name) == has {
		return nil
	}

	if has {
		names.Keyring = append(names.Keyring, name)
		slices.Sort(names.Keyring)
	} else {
		names.Keyring = slices.DeleteFunc(names.Keyring, func(n string) bool { return n == name })
	}

	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.indexFile(), text, 0o600); err != nil {
		return fmt.Errorf("the list of secrets cannot be written: %w", err)
	}

	return nil
}
