package signintest

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"rouse/agent/tool/moduleapi/signin"
)

// Store is an in-memory store. The zero value is an empty store.
type Store struct {
	Fail error // error of the next Set, or nil

	mu     sync.Mutex
	values map[string]string
}

// Get implements signin.Store.
func (s *Store) Get(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.values[name]; ok {
		return value, nil
	}
	return "", signin.ErrNone
}

// Set implements signin.Store.
func (s *Store) Set(name, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Fail; err != nil {
		s.Fail = nil
		return err
	}
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	return nil
}

// Remove implements signin.Store.
func (s *Store) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values[name]; !ok {
		return signin.ErrNone
	}
	delete(s.values, name)
	return nil
}

// Names implements signin.Store.
func (s *Store) Names() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.values)), nil
}

// Holds reports whether a stored value contains text.
func (s *Store) Holds(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, value := range s.values {
		if strings.Contains(value, text) {
			return true
		}
	}
	return false
}
