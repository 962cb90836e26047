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

// Scheme is how a sender proves that a request is theirs.
type Scheme string

// The schemes.
const (
	Standard Scheme = "standard" // Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature
	GitHub   Scheme = "github"   // X-Hub-Signature-256
	GitLab   Scheme = "gitlab"   // X-Gitlab-Token, which is the secret itself
	Stripe   Scheme = "stripe"   // Stripe-Signature
	Slack    Scheme = "slack"    // X-Slack-Signature
)

// Window is how far the time of a request may be from ours, where its scheme signs the time.
const Window = 5 * time.Minute

// idempotencyKey is the header by which a sender numbers deliveries where its scheme does not. No scheme signs it, so it is not heeded
// where one signs the number or the time: whoever has seen a request could start it once more under another key.
const idempotencyKey = "Idempotency-Key"

// maxName bounds what a sender calls a delivery, in bytes.
const maxName = 200

// Delivery is what a request is, apart from its body.
type Delivery struct {
	ID    string // the same in each try of its sender
	Event string // what its sender calls it, "" where they do not say
	// Keyed says that ID is an Idempotency-Key, which its sender chose: with another body it is another delivery by mistake.
	Keyed bool
	// Challenge is to be answered, and nothing else to be done: Slack asks once whether somebody is there.
	Challenge string
}

// Verify says what a request is, if its sender knows the secret. The error says what is wrong, and nothing of the secret.
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
		if d.ID == "" { // a program of one's own, which signs as GitHub does
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

	// Who gives it no number sends it again with the same bytes.
	if d.ID == "" {
		sum := sha256.Sum256(body)
		d.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	// Standard Webhooks signs ID.TIME.BODY: with a dot in the ID, the same signature would also fit another time and body.
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

// Sign gives the headers with which a request passes Verify.
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

// minKey is the least length of a key, in bytes: shorter ones can be guessed.
const minKey = 16

// CheckSecret says why a secret cannot prove a sender. The error has nothing of the secret in it.
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

// The headers of Standard Webhooks.
const (
	standardID        = "webhook-id"
	standardTime      = "webhook-timestamp"
	standardSignature = "webhook-signature"
)

// standardKey reads a secret as Standard Webhooks has them: base64, mostly behind whsec_. Any other text is the key itself.
func standardKey(secret string) string {
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil {
		return string(key)
	}
	return secret
}

func signStandard(secret, id, at string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(mac(standardKey(secret), []byte(id+"."+at+"."), body))
}

// verifyStandard accepts any of several signatures, which are separated by blanks while the secret changes.
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

// verifyStripe reads Stripe-Signature: t=SECONDS,v1=SIGNATURE, with more than one v1 while its secret changes.
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
	if d.ID == "" { // a command or a button, which is not sent again: two equal ones are two
		sum := sha256.Sum256(append([]byte(at+":"), body...))
		d.ID = "sha256:" + hex.EncodeToString(sum[:])
	}
	return d, nil
}

// mac returns the HMAC-SHA256 of some bytes.
func mac(key string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(key))
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// sign returns mac in hexadecimal.
func sign(secret string, parts ...[]byte) string { return hex.EncodeToString(mac(secret, parts...)) }

// matches compares a header with what it must be, in a time that tells nothing of it.
func matches(header, got, want string) error {
	switch {
	case got == "":
		return fmt.Errorf("the header %s is not there", header)
	case want == "" || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1:
		return fmt.Errorf("the header %s does not fit the secret and the body", header)
	}
	return nil
}

// matchesAny compares each signature in a header with what it must be.
func matchesAny(header, value string, signatures []string, want string) error {
	if slices.ContainsFunc(signatures, func(s string) bool { return matches(header, s, want) == nil }) {
		return nil
	}
	return matches(header, value, "")
}

// inTime says whether a signed time is about now.
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

// field is a text of a JSON object, "" where there is none.
func field(body []byte, name string) string {
	var object map[string]json.RawMessage
	var text string
	if json.Unmarshal(body, &object) == nil {
		_ = json.Unmarshal(object[name], &text) // another type is no name
	}
	return text
}
