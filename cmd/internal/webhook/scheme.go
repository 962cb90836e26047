package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rouse/internal/text"
)

// Scheme is a method of signing requests.
type Scheme string

// Supported schemes.
const (
	Standard Scheme = "standard" // Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature
	GitHub   Scheme = "github"   // X-Hub-Signature-256
	GitLab   Scheme = "gitlab"   // X-Gitlab-Token, which contains the secret itself
	Stripe   Scheme = "stripe"   // Stripe-Signature
	Slack    Scheme = "slack"    // X-Slack-Signature
)

// Window is the maximum difference between a signed time and the local clock.
const Window = 5 * time.Minute

// idempotencyKey is the header with the delivery's ID, for schemes that have no ID of their own. It
// is not signed. Schemes that sign the ID or the time ignore it: otherwise a captured request could
// be replayed under another key.
const idempotencyKey = "Idempotency-Key"

// maxName is the maximum length of a delivery's ID or event, in bytes.
const maxName = 200

// Delivery holds the properties of a request other than its body.
type Delivery struct {
	ID    string // the same for each attempt of the sender
	Event string // event name given by the sender; optional
	// Keyed means that ID is an Idempotency-Key chosen by the sender. The same key with another
	// body is an error.
	Keyed bool
	// Challenge is the text to respond with, without any other action. Slack sends one to verify
	// the address.
	Challenge string
}

// Verify checks the signature of a request and returns its delivery. Errors do not contain the
// secret.
func (s Scheme) Verify(secret string, h http.Header, body []byte, now time.Time) (Delivery, error) {
	if err := s.CheckSecret(secret); err != nil {
		return Delivery{}, err
	}

	var d Delivery
	var err error
	switch s {
	case Standard:
		d, err = verifyStandard(secret, h, body, now)
	case GitHub:
		d = Delivery{ID: h.Get("X-GitHub-Delivery"), Event: h.Get("X-GitHub-Event")}
		if d.ID == "" { // a custom program that signs like GitHub
			d.ID = h.Get(idempotencyKey)
			d.Keyed = d.ID != ""
		}
		err = matches("X-Hub-Signature-256", h.Get("X-Hub-Signature-256"), "sha256="+sign(secret, body))
	case GitLab:
		d = Delivery{ID: h.Get(idempotencyKey), Event: h.Get("X-Gitlab-Event")}
		d.Keyed = d.ID != ""
		err = matches("X-Gitlab-Token", h.Get("X-Gitlab-Token"), secret)
	case Stripe:
		d, err = verifyStripe(secret, h, body, now)
	case Slack:
		d, err = verifySlack(secret, h, body, now)
	default:
		err = fmt.Errorf("there is no scheme %q", s)
	}
	if err != nil {
		return Delivery{}, err
	}

	// A sender without an ID repeats a delivery with the same bytes.
	if d.ID == "" {
		sum := sha256.Sum256(body)
		d.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	// Standard Webhooks signs ID.TIME.BODY. With a dot in the ID, the signature would also match
	// another split into time and body.
	if s == Standard && strings.Contains(d.ID, ".") {
		return Delivery{}, fmt.Errorf("the header %s has a dot, which the standard does not allow", standardID)
	}
	for _, name := range []string{d.ID, d.Event} {
		if !text.IsPlain(name, maxName) {
			return Delivery{}, fmt.Errorf("the name of a delivery or of its event is no plain text of at most %d bytes", maxName)
		}
	}
	return d, nil
}

// Sign returns the headers with which a request passes Verify.
func (s Scheme) Sign(secret string, d Delivery, body []byte, now time.Time) (http.Header, error) {
	if err := s.CheckSecret(secret); err != nil {
		return nil, err
	}
	h, at := http.Header{}, strconv.FormatInt(now.Unix(), 10)
	switch s {
	case Standard:
		h.Set(standardID, d.ID)
		h.Set(standardTime, at)
		h.Set(standardSignature, signStandard(secret, d.ID, at, body))
	case GitHub:
		h.Set("X-GitHub-Delivery", d.ID)
		h.Set("X-GitHub-Event", d.Event)
		h.Set("X-Hub-Signature-256", "sha256="+sign(secret, body))
	case GitLab:
		h.Set(idempotencyKey, d.ID)
		h.Set("X-Gitlab-Event", d.Event)
		h.Set("X-Gitlab-Token", secret)
	case Stripe:
		h.Set("Stripe-Signature", "t="+at+",v1="+sign(secret, []byte(at+"."), body))
	case Slack:
		h.Set("X-Slack-Request-Timestamp", at)
		h.Set("X-Slack-Signature", "v0="+sign(secret, []byte("v0:"+at+":"), body))
	default:
		return nil, fmt.Errorf("there is no scheme %q", s)
	}

	return h, nil
}

// minKey is the minimum length of a key, in bytes. Shorter keys can be guessed.
const minKey = 16

// CheckSecret returns an error if a secret is missing or too weak. The error does not contain the
// secret.
func (s Scheme) CheckSecret(secret string) error {
	key := strings.TrimSpace(secret)
	if key == "" {
		return errors.New("the secret of this webhook is not set")
	}
	if s == Standard {
		key = standardKey(key)
	}
	if len(key) < minKey {
		return fmt.Errorf("the secret of this webhook can be guessed, because its key has fewer than %d bytes; set a longer one, here and at the other side, such as the output of: openssl rand -hex 32", minKey)
	}
	return nil
}

// Headers of Standard Webhooks.
const (
	standardID        = "webhook-id"
	standardTime      = "webhook-timestamp"
	standardSignature = "webhook-signature"
)

// standardKey decodes a secret in the format of Standard Webhooks: base64, usually with the prefix
// whsec_. Any other text is used as the key itself.
func standardKey(secret string) string {
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil {
		return string(key)
	}
	return secret
}

func signStandard(secret, id, at string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(standardKey(secret), []byte(id+"."+at+"."), body))
}

// verifyStandard verifies a request of Standard Webhooks. While a secret is rotated, the header
// contains several signatures separated by spaces; one must match.
func verifyStandard(secret string, h http.Header, body []byte, now time.Time) (Delivery, error) {
	id, at, signatures := h.Get(standardID), h.Get(standardTime), h.Get(standardSignature)
	if id == "" || at == "" || signatures == "" {
		return Delivery{}, fmt.Errorf("the headers %s, %s and %s are not all there", standardID, standardTime, standardSignature)
	}

	if err := matchesAny(standardSignature, signatures, strings.Split(signatures, " "), signStandard(secret, id, at, body)); err != nil {
		return Delivery{}, err
	}
	return Delivery{ID: id, Event: field(body, "type")}, inTime(at, now)
}

// verifyStripe verifies a Stripe-Signature header: t=SECONDS,v1=SIGNATURE. While a secret is
// rotated, there are several v1 values.
func verifyStripe(secret string, h http.Header, body []byte, now time.Time) (Delivery, error) {
	const header = "Stripe-Signature"
	var at string
	var signatures []string
	for part := range strings.SplitSeq(h.Get(header), ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			at = value
		case "v1":
			signatures = append(signatures, value)
		}
	}

	if err := matchesAny(header, h.Get(header), signatures, sign(secret, []byte(at+"."), body)); err != nil {
		return Delivery{}, err
	}
	return Delivery{ID: field(body, "id"), Event: field(body, "type")}, inTime(at, now)
}

func verifySlack(secret string, h http.Header, body []byte, now time.Time) (Delivery, error) {
	at := h.Get("X-Slack-Request-Timestamp")
	if err := matches("X-Slack-Signature", h.Get("X-Slack-Signature"), "v0="+sign(secret, []byte("v0:"+at+":"), body)); err != nil {
		return Delivery{}, err
	}
	if err := inTime(at, now); err != nil {
		return Delivery{}, err
	}

	d := Delivery{ID: field(body, "event_id"), Event: field(body, "type")}
	if d.Event == "url_verification" {
		d.Challenge = field(body, "challenge")
	}
	if d.ID == "" { // a command or a button, which Slack does not repeat
		sum := sha256.Sum256(append([]byte(at+":"), body...))
		d.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	return d, nil
}

// mac returns the HMAC-SHA256 of the concatenated parts.
func mac(key string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// sign returns mac in hexadecimal.
func sign(secret string, parts ...[]byte) string { return hex.EncodeToString(mac(secret, parts...)) }

// matches compares a header with its expected value in constant time.
func matches(header, got, want string) error {
	switch {
	case got == "":
		return fmt.Errorf("the header %s is not there", header)
	case want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1:
		return fmt.Errorf("the header %s does not fit the secret and the body", header)
	}
	return nil
}

// matchesAny returns nil if one of the signatures has the expected value.
func matchesAny(header, value string, signatures []string, want string) error {
	if slices.ContainsFunc(signatures, func(s string) bool { return matches(header, s, want) == nil }) {
		return nil
	}
	return matches(header, value, "")
}

// inTime returns an error unless a signed time is within Window of now.
func inTime(at string, now time.Time) error {
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("the time of the request is no number of seconds")
	}

	switch off := now.Sub(time.Unix(seconds, 0)); {
	case off > Window:
		return fmt.Errorf("the request is older than %s", Window)
	case off < -Window:
		return fmt.Errorf("the request is from the future, by more than %s; is the clock of this machine right?", Window)
	}
	return nil
}

// field returns a string field of a JSON object, or "" if there is none.
func field(body []byte, name string) string {
	var object map[string]json.RawMessage
	var text string
	if json.Unmarshal(body, &object) == nil {
		_ = json.Unmarshal(object[name], &text) // a value of another type counts as missing
	}
	return text
}
