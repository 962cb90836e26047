package skills

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Maximum size in bytes of one WebAssembly module, and of all modules of a program.
const (
	maxWASM    = 10 << 20
	maxAllWASM = 32 << 20
)

// wasmMagic is the header of a WebAssembly module, version 1.
const wasmMagic = "\x00asm\x01\x00\x00\x00"

// WASMCode returns the code of the declared WebAssembly modules, in manifest order. The code is in
// the skill's folder or in the manifest. WASMCode does not download or build modules. It returns an
// error if a module does not match its auditHash. The error names the module and a remedy.
func (s *Skill) WASMCode() ([][]byte, error) {
	if s.Manifest == nil || len(s.Manifest.WASM) == 0 {
		return nil, nil
	}

	var out [][]byte
	left := maxAllWASM
	for _, w := range s.Manifest.WASM {
		code, err := w.read(s.Dir)
		if err == nil {
			err = w.audit(code)
		}
		if left -= len(code); err == nil && left < 0 {
			err = fmt.Errorf("with those before it has over %d MiB, which are the most", maxAllWASM>>20)
		}
		if err != nil {
			return nil, fmt.Errorf("the WebAssembly module %s of the skill %s cannot be used: %w", w.ModuleID, s.Name, err)
		}
		out = append(out, code)
	}
	return out, nil
}

// read returns the bytes of a module, without comparing them to the audit hash.
func (w WASM) read(dir string) ([]byte, error) {
	if w.SourceKind == wasmInline {
		return w.inline()
	}
	if w.Remote() {
		return nil, fmt.Errorf("it is at %s, and nothing is fetched for a skill while it runs; put the file into its folder, and name it there as sourceUrl", w.SourceURL)
	}
	// The source kind is build_from_source, because the manifest parser requires a URL for the kind
	// url.
	if w.SourceURL == "" {
		return nil, errors.New("it would have to be built, and rouse builds nothing; put what was built into the folder of the skill, and name it as sourceUrl")
	}

	name := path.Clean(strings.TrimPrefix(w.SourceURL, "./"))
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, fmt.Errorf("%q leads out of the folder of the skill", w.SourceURL)
	}
	code, problems := readFile(dir, filepath.FromSlash(name), maxWASM, "")
	if len(problems) > 0 {
		return nil, problems[0]
	}
	return code, nil
}

// Remote reports whether the module's code is at a URL.
func (w WASM) Remote() bool {
	scheme, _, ok := strings.Cut(w.SourceURL, ":")
	return w.SourceKind != wasmInline && ok && !strings.ContainsAny(scheme, "/.")
}

// inline decodes a module in the manifest, from Base64 or a data: URL.
func (w WASM) inline() ([]byte, error) {
	text := w.SourceURL
	if rest, ok := strings.CutPrefix(text, "data:"); ok {
		kind, data, _ := strings.Cut(rest, ",")
		if !strings.HasSuffix(kind, ";base64") {
			return nil, errors.New("its sourceUrl is a data: address of another form than data:application/wasm;base64,…")
		}
		text = data
	}
	if text == "" {
		return nil, errors.New("its sourceKind is inline_base64, and its sourceUrl holds no Base64")
	}

	code, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("its sourceUrl is no Base64: %w", err)
	case len(code) > maxWASM:
		return nil, fmt.Errorf("it has %d bytes, and %d are the most", len(code), maxWASM)
	}
	return code, nil
}

// audit checks the hash and the header of a module.
func (w WASM) audit(code []byte) error {
	if w.AuditHash != nil {
		want, err := auditSum(*w.AuditHash)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(code); !slices.Equal(sum[:], want) {
			return fmt.Errorf("its bytes have the hash sha256:%x, and its auditHash is %s: it is not the one that was audited; get that one, or have this one audited and change the manifest", sum, *w.AuditHash)
		}
	}
	if !strings.HasPrefix(string(code), wasmMagic) {
		return errors.New("it is no WebAssembly module (of the version 1, as bytes)")
	}
	return nil
}

// auditSum parses an audit hash: a SHA-256 in the form sha256:HEX, HEX or sha256-BASE64.
func auditSum(text string) ([]byte, error) {
	var sum []byte
	var err error
	if b64, ok := strings.CutPrefix(text, "sha256-"); ok {
		sum, err = base64.StdEncoding.DecodeString(b64)
	} else {
		sum, err = hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	}
	if err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("its auditHash %q is no SHA-256; write sha256: and 64 hexadecimal digits, or null", text)
	}
	return sum, nil
}
