package secret

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zalando/go-keyring"
)

// ring is an in-memory keyring. fail is the error it returns; if hang is set, it does not answer.
type ring struct {
	mu    sync.Mutex
	held  map[string]string
	fail  error
	hang  chan struct{}
	asked int
}

func (r *ring) do(f func() error) error {
	r.mu.Lock()
	r.asked++
	hang := r.hang
	r.mu.Unlock()
	if hang != nil {
		<-hang
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.fail != nil {
		return r.fail
	}

	return f()
}

func (r *ring) Get(service, user string) (value string, err error) {
	err = r.do(func() error {
		v, ok := r.held[service+" "+user]
		if !ok {
			return keyring.ErrNotFound
		}
		value = v
		return nil
	})
	return value, err
}

func (r *ring) Set(service, user, value string) error {
	return r.do(func() error { r.held[service+" "+user] = value; return nil })
}

func (r *ring) Delete(service, user string) error {
	return r.do(func() error {
		if _, ok := r.held[service+" "+user]; !ok {
			return keyring.ErrNotFound
		}
		delete(r.held, service+" "+user)
		return nil
	})
}

func open(t *testing.T, home string, k Keyring, env map[string]string) *Store {
	t.Helper()
	s, err := New(Options{Home: home, Keyring: k, Getenv: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	s.work = 10 // scrypt is slow by design
	return s
}

func get(t *testing.T, s *Store, name string) string {
	t.Helper()
	value, source, err := s.Get(name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s in %s", value, source)
}

func set(t *testing.T, s *Store, name, value string, in Source) string {
	t.Helper()
	source, why, err := s.Set(name, value, in)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(source) + " " + why)
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want && (want == "" || !strings.Contains(got, want)) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// The keyring is searched first, then the file, then the environment. Each secret is stored in one
// place.
func TestOrder(t *testing.T) {
	home, k, env := filepath.Join(t.TempDir(), "home"), &ring{held: map[string]string{}}, map[string]string{"ROUSE_SECRET_MY_KEY": "from-env"}
	s := open(t, home, k, env)
	expect(t, "from the environment", get(t, s, "my-key"), "from-env in environment")
	expect(t, "nowhere", get(t, s, "other"), ErrNotSet.Error())
	expect(t, "into the keyring", set(t, s, "my-key", "one", ""), "keyring")
	expect(t, "from the keyring", get(t, open(t, home, k, env), "my-key"), "one in keyring")
	expect(t, "into the file", set(t, s, "my-key", "two", InFile), "file")
	expect(t, "from the file", get(t, open(t, home, k, env), "my-key"), "two in file")
	if len(k.held) != 0 {
		t.Errorf("the keyring still has %v", k.held)
	}

	expect(t, "back into the keyring", set(t, s, "my-key", "three", InKeyring), "keyring")
	again := open(t, home, k, env)
	if list, err := again.List(); err != nil || fmt.Sprint(list) != "map[my-key:keyring]" || len(again.file) != 0 {
		t.Errorf("the list is %v (%v), the file holds %v", list, err, again.file)
	}

	from, err := s.Remove("my-key")
	if fmt.Sprint(from, err) != "[keyring] <nil>" {
		t.Errorf("removed from %v (%v)", from, err)
	}

	expect(t, "after its removal", get(t, s, "my-key"), "from-env in environment")
	if _, err := s.Remove("my-key"); !errors.Is(err, ErrNotSet) {
		t.Errorf("removed twice: %v", err)
	}

	for _, name := range []string{"", "../x", "a b", "-a", strings.Repeat("a", 64), "a\n"} {
		expect(t, "a name", set(t, s, name, "x", ""), "cannot be the name of a secret")
	}

	expect(t, "an empty value", set(t, s, "a", "", ""), "empty")
	expect(t, "a long value", set(t, s, "a", strings.Repeat("x", MaxValue+1), ""), "at most")
}

// If the keyring is missing, broken or silent, secrets go to the file, and Set returns the reason.
func TestKeyringFails(t *testing.T) {
	home := t.TempDir()
	expect(t, "without one", set(t, open(t, home, nil, nil), "a", "1", ""), "file this session has no keyring")
	expect(t, "asked for", set(t, open(t, home, nil, nil), "a", "1", InKeyring), "no keyring")
	k := &ring{held: map[string]string{}}
	expect(t, "a good one", set(t, open(t, home, k, nil), "b", "2", ""), "keyring")
	k.fail = errors.New("the collection is locked")
	expect(t, "a broken one", set(t, open(t, home, k, nil), "c", "3", ""), "file the keyring of this system cannot be used: the collection is locked")
	expect(t, "from a broken one", get(t, open(t, home, k, nil), "b"), "the collection is locked")
	expect(t, "what it does not have", get(t, open(t, home, k, nil), "c"), "3 in file")
	synctest.Test(t, func(t *testing.T) {
		k.fail, k.hang = nil, make(chan struct{})
		s, began := open(t, home, k, nil), time.Now()
		k.asked = 0
		expect(t, "from a silent one", get(t, s, "b"), "no answer within 2s")
		expect(t, "into a silent one", set(t, s, "d", "4", ""), "file the keyring of this system gave no answer within 2s")
		took := time.Since(began)
		close(k.hang)
		synctest.Wait()
		if took != keyringWait || k.asked != 1 {
			t.Errorf("it was asked %d times, for %s", k.asked, took)
		}
	})
}

// An empty keyring counts as reachable. A failing or missing one does not, and the error says why.
func TestReach(t *testing.T) {
	if err := open(t, t.TempDir(), &ring{held: map[string]string{}}, nil).Reach(); err != nil {
		t.Error(err)
	}
	if err := open(t, t.TempDir(), nil, nil).Reach(); err == nil || err.Error() != "this session has no keyring" {
		t.Errorf("without one: %v", err)
	}
}

// The files are accessible to the owner only and do not contain the values in plain text.
func TestFile(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	const value = "canary-value-0123456789"
	s := open(t, home, nil, nil)
	set(t, s, "a", value, "")
	set(t, s, "b", value+"\nsecond line", "")
	expect(t, "read again", get(t, open(t, home, nil, nil), "b"), value+"\nsecond line in file")
	entries, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		path := filepath.Join(home, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := e.Info(); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the permissions %v (%v)", e.Name(), info.Mode(), err)
		}
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("%s holds a value", e.Name())
		}
	}

	if runtime.GOOS != "windows" {
		if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the home has the permissions %v (%v)", info.Mode(), err)
		}
		if err := os.Chmod(filepath.Join(home, "secrets.key"), 0o644); err != nil {
			t.Fatal(err)
		}
		expect(t, "a key for everybody", get(t, open(t, home, nil, nil), "a"), "can be read by others")
	}

	if err := os.Remove(filepath.Join(home, "secrets.key")); err != nil {
		t.Fatal(err)
	}

	expect(t, "without the key", get(t, open(t, home, nil, nil), "a"), "there is neither its key")
	expect(t, "set without the key", set(t, open(t, home, nil, nil), "c", "x", ""), "there is neither its key")
}

// Errors about damaged files contain instructions for the user. Damaged files are not overwritten.
func TestDamagedFile(t *testing.T) {
	home := t.TempDir()
	s := open(t, home, nil, nil)
	set(t, s, "a", "canary-value", "")
	path := filepath.Join(home, "secrets.age")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	for name, text := range map[string][]byte{"empty": nil, "no file of age": []byte("hi\n"), "cut off": whole[:len(whole)-3], "changed": flipped} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}

		expect(t, name, get(t, open(t, home, nil, nil), "a"), "bring it back from a backup, or remove it and set the secrets again")
		expect(t, name, set(t, open(t, home, nil, nil), "b", "x", ""), "it is damaged")
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("%s: it was written over (%v)", name, err)
		}
	}

	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}

	expect(t, "a folder", get(t, open(t, home, nil, nil), "a"), "is not a plain file")
}

// Invalid values are rejected.
func TestValues(t *testing.T) {
	for value, want := range map[string]string{"": "is empty", "a\x00b": "is no text", "\xff\xfe": "is no text", strings.Repeat("x", MaxValue+1): "more than 65536 bytes"} {
		expect(t, fmt.Sprintf("%.8q", value), set(t, open(t, t.TempDir(), nil, nil), "a", value, InFile), want)
	}
}

// With a passphrase, no key is stored on disk.
func TestPassphrase(t *testing.T) {
	home, env := t.TempDir(), map[string]string{"ROUSE_SECRETS_PASSPHRASE": "correct horse"}
	set(t, open(t, home, nil, nil), "a", "one", "")
	s := open(t, home, nil, env)
	expect(t, "written with the key", get(t, s, "a"), "one in file")
	set(t, s, "b", "two", "")
	if _, err := os.Stat(filepath.Join(home, "secrets.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key is still there (%v)", err)
	}

	expect(t, "written with the passphrase", get(t, open(t, home, nil, env), "a"), "one in file")
	expect(t, "without it", get(t, open(t, home, nil, nil), "a"), "there is neither")
	expect(t, "with another", get(t, open(t, home, nil, map[string]string{"ROUSE_SECRETS_PASSPHRASE": "wrong"}), "a"), "opens it")
}

// Processes that set secrets at the same time do not lose any.
func TestConcurrentSets(t *testing.T) {
	home := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s, err := New(Options{Home: home, Getenv: func(string) string { return "" }})
			if err == nil {
				_, _, err = s.Set(fmt.Sprintf("s%d", i), fmt.Sprint("value", i), InFile)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if list, err := open(t, home, nil, nil).List(); err != nil || len(list) != 8 {
		t.Errorf("%d are left: %v (%v)", len(list), list, err)
	}
}

// Another collection has its own files, unrestricted names and no values from the environment. The
// collections do not see each other's values.
func TestCollection(t *testing.T) {
	home, k, env := filepath.Join(t.TempDir(), "home"), &ring{held: map[string]string{}}, map[string]string{"ROUSE_SECRET_A": "from-env"}
	of := func(collection string, k Keyring) *Store {
		s, err := New(Options{Home: home, Collection: collection, Keyring: k, Getenv: func(name string) string { return env[name] }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	expect(t, "not from the environment", get(t, of("others", nil), "a"), ErrNotSet.Error())
	expect(t, "a name with slashes", set(t, of("others", nil), "a/b/c d", "one", ""), "file")
	expect(t, "as a secret", set(t, of("", nil), "a/b/c", "x", ""), "cannot be the name of a secret")
	expect(t, "a secret", set(t, of("", nil), "a", "two", ""), "file")
	expect(t, "the other one", get(t, of("others", nil), "a/b/c d"), "one in file")
	expect(t, "the secret", get(t, of("others", nil), "a"), ErrNotSet.Error())
	for _, name := range []string{"others.age", "others.key", "secrets.age", "secrets.key"} {
		if _, err := os.Stat(filepath.Join(home, name)); err != nil {
			t.Error(err)
		}
	}

	expect(t, "into the keyring", set(t, of("others", k), "b", "three", ""), "keyring")
	expect(t, "as a secret from the keyring", get(t, of("", k), "b"), ErrNotSet.Error())
	expect(t, "from the keyring", get(t, of("others", k), "b"), "three in keyring")
}
