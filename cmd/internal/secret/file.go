package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"filippo.io/age"

	"rouse/internal/atomicfile"
)

// passphraseVariable is the environment variable that holds the passphrase of the file.
const passphraseVariable = "ROUSE_SECRETS_PASSPHRASE"

const (
	maxFile    = 64 << 20 // bytes
	workFactor = 17       // work factor of scrypt, as a power of two: 0.4 s and 128 MiB
)

func (s *Store) valuesFile() string { return s.place(".age") }
func (s *Store) keyFile() string    { return s.place(".key") }

// values returns the secrets in the file. It returns an empty map if there is no file.
func (s *Store) values() (map[string]string, error) {
	if s.loaded {
		return s.file, nil
	}

	values := map[string]string{}
	encrypted, err := readUpTo(s.valuesFile(), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("the secrets cannot be read: %w", err)
	default:
		if values, err = s.decrypt(encrypted); err != nil {
			return nil, fmt.Errorf("the secrets in %s cannot be read: %w", s.valuesFile(), err)
		}
	}

	s.loaded, s.file = true, values
	return values, nil
}

// decrypt decrypts the file. It tries both the passphrase and the key, because either may have been
// added later.
func (s *Store) decrypt(encrypted []byte) (map[string]string, error) {
	var keys []age.Identity
	if pass := s.getenv(passphraseVariable); pass != "" {
		key, err := age.NewScryptIdentity(pass)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}

	key, err := s.key()
	if err != nil {
		return nil, err
	}

	if key != nil {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is neither its key %s nor a passphrase in $%s; bring back the one that it was written with", s.keyFile(), passphraseVariable)
	}

	r, err := age.Decrypt(bytes.NewReader(encrypted), keys...)
	var no *age.NoIdentityMatchError
	if errors.As(err, &no) {
		return nil, fmt.Errorf("neither the key %s nor the passphrase in $%s opens it; bring back the one that it was written with", s.keyFile(), passphraseVariable)
	}

	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, maxFile))
	}

	values := map[string]string{}
	if err == nil && json.Unmarshal(text, &values) != nil {
		err = errors.New("it holds no secrets") // json's error would contain the secrets
	}
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w; bring it back from a backup, or remove it and set the secrets again", err)
	}

	return values, nil
}

// key returns the key from the key file, or nil if there is no file.
func (s *Store) key() (*age.X25519Identity, error) {
	text, err := readUpTo(s.keyFile(), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("its key: %w", err)
	}
	// Report the wrong mode instead of fixing it: other users may already have copied the key. On
	// Windows, the mode does not reflect other users' access.
	if info, err := os.Stat(s.keyFile()); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("its key %s can be read by others; set every secret again, or, where nobody has seen it: chmod 600 %[1]s", s.keyFile())
	}

	key, err := age.ParseX25519Identity(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("its key %s is damaged; bring it back, or remove it and %s and set the secrets again", s.keyFile(), s.valuesFile())
	}

	return key, nil
}

// save encrypts and writes the file, with the passphrase if there is one, otherwise with the key.
// It removes a key that is no longer needed.
func (s *Store) save(values map[string]string) error {
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}

	s.loaded = false // the file on disk is unknown until the write succeeds
	to, err := s.recipient()
	if err != nil {
		return fmt.Errorf("the secrets cannot be written: %w", err)
	}

	var encrypted bytes.Buffer
	w, err := age.Encrypt(&encrypted, to)
	if err == nil {
		_, err = w.Write(text)
	}

	if err == nil {
		err = w.Close()
	}

	if err == nil {
		err = atomicfile.Write(s.valuesFile(), encrypted.Bytes(), 0o600)
	}

	// Remove the key only now: until the file was written, the old file needed it.
	if err == nil && s.getenv(passphraseVariable) != "" {
		if err = os.Remove(s.keyFile()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("the secrets cannot be written: %w", err)
	}

	s.loaded, s.file = true, values
	return nil
}

// recipient returns the recipient to encrypt for. It generates a missing key.
func (s *Store) recipient() (age.Recipient, error) {
	if pass := s.getenv(passphraseVariable); pass != "" {
		to, err := age.NewScryptRecipient(pass)
		if err == nil {
			to.SetWorkFactor(s.work)
		}
		return to, err
	}

	key, err := s.key()
	if err != nil {
		return nil, err
	}

	// The key must be on disk before anything is encrypted with it.
	if key == nil {
		if key, err = age.GenerateX25519Identity(); err != nil {
			return nil, err
		}
		if err := atomicfile.Write(s.keyFile(), []byte(key.String()+"\n"), 0o600); err != nil {
			return nil, err
		}
	}

	return key.Recipient(), nil
}

// readUpTo reads a regular file of at most the given number of bytes.
func readUpTo(path string, most int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() { // opening a pipe would block
		return nil, fmt.Errorf("%s is not a plain file", path)
	}

	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	// Read one byte more to detect a file that is too long.
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}

	return text, err
}
