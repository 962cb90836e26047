package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"rouse/internal/nofollow"
)

// maxFile is the maximum size of a configuration file, in bytes.
const maxFile = 4 << 20

// ReadMain reads the main file of a configuration.
func ReadMain(path string) (text []byte, err error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		text, err = readBounded(f, path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration %s; write one with: rouse init", Display(path))
	case err != nil:
		return nil, fmt.Errorf("the configuration cannot be read: %w", err)
	}
	return text, nil
}

func readBounded(f io.Reader, path string) ([]byte, error) {
	// Read one extra byte to detect larger files.
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %s", Display(path), Size(maxFile))
	}

	return text, nil
}

// ReadPlain reads a regular file. It refuses other files. Only the main file may be a pipe, as in
// rouse --config <(…).
func ReadPlain(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", Display(path))
	}

	f, err := (nofollow.UntrustedDirs{}).Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", Display(path))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return readBounded(f, path)
}
