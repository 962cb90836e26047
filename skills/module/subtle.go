package module

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
)

// subtleHashes are the hash functions of crypto.subtle.
var subtleHashes = map[string]func() hash.Hash{"SHA-1": sha1.New, "SHA-256": sha256.New, "SHA-384": sha512.New384, "SHA-512": sha512.New}

// hostSubtle implements the operations of crypto.subtle. args is one of:
//
//	digest HASH DATA
//	hmac HASH KEY DATA
//	verify HASH KEY DATA MAC
//	seal KEY IV ADDITIONAL DATA TAGBYTES
//	open KEY IV ADDITIONAL DATA TAGBYTES
//
// Bytes are encoded as Base64. It returns nil if the operation fails, for example if authentication
// fails.
func hostSubtle(args []any) (any, error) {
	what, _ := argument[string](args, 0)
	switch what {
	case "digest", "hmac", "verify":
		return subtleHash(what, args[1:])
	case "seal", "open":
		return subtleGCM(what, args[1:])
	}
	return nil, fmt.Errorf("crypto.subtle does not have the operation %q", what)
}

func subtleHash(what string, args []any) (any, error) {
	name, _ := argument[string](args, 0)
	given, err := subtleBytes(args[1:])
	if err != nil {
		return nil, err
	}
	of := subtleHashes[name]
	if of == nil || len(given) != map[string]int{"digest": 1, "hmac": 2, "verify": 3}[what] {
		return nil, fmt.Errorf("crypto.subtle cannot compute %s with %q and %d values", what, name, len(given))
	}

	h, data := of(), given[0]
	if what != "digest" {
		h, data = hmac.New(of, given[0]), given[1]
	}
	_, _ = h.Write(data) // a hash never returns an error
	sum := h.Sum(nil)
	if what == "verify" {
		return hmac.Equal(sum, given[2]), nil
	}
	return base64.StdEncoding.EncodeToString(sum), nil
}

func subtleGCM(what string, args []any) (any, error) {
	tag, ok := argument[int](args, 4)
	if !ok {
		return nil, fmt.Errorf("crypto.subtle cannot compute %s without the length of the tag", what)
	}
	given, err := subtleBytes(args[:4])
	if err != nil {
		return nil, err
	}

	key, iv, additional, data := given[0], given[1], given[2], given[3]
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	var gcm cipher.AEAD
	switch {
	case len(iv) == 0:
		return nil, nil
	case len(iv) == 12:
		gcm, err = cipher.NewGCMWithTagSize(block, tag)
	case tag == 16:
		gcm, err = cipher.NewGCMWithNonceSize(block, len(iv))
	default:
		return nil, nil
	}
	if err != nil {
		return nil, nil //nolint:nilerr // AES-GCM does not support the length
	}

	if what == "seal" {
		return base64.StdEncoding.EncodeToString(gcm.Seal(nil, iv, data, additional)), nil
	}
	plain, err := gcm.Open(nil, iv, data, additional)
	if err != nil {
		return nil, nil //nolint:nilerr // authentication failed
	}
	return base64.StdEncoding.EncodeToString(plain), nil
}

func subtleBytes(args []any) (out [][]byte, err error) {
	for i := range args {
		text, ok := argument[string](args, i)
		if !ok {
			return nil, fmt.Errorf("value %d of crypto.subtle is not bytes", i)
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
