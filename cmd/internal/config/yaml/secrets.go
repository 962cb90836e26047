package yaml

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"rouse/cmd/internal/config"
)

var (
	variable     = regexp.MustCompile(`\$?\$\{([^}]*)\}`)
	reference    = regexp.MustCompile(`\$\{[^}]*\}`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretName   = regexp.MustCompile(`^secret:([A-Za-z0-9_.-]+)$`)

	// secretKey matches the keys that make a variable in their value a secret.
	secretKey = regexp.MustCompile(`(?i)(key|secret|token|password|url|postgres)[^.\]]*$|\]\.http$`)
	// secretVariable matches the names of variables that are always secrets.
	secretVariable = regexp.MustCompile(`(?i)key|secret|token|password|passwd|credential`)
	// secretHeader matches the names of headers with a secret value, even a literal one.
	secretHeader = regexp.MustCompile(`(?i)auth|key|secret|token|cookie|passw|pwd|credential`)
	// serverEnv matches the variables of MCP server programs, which are all secrets.
	serverEnv = regexp.MustCompile(`^mcp\[\d+\]\.env\.`)
	// isCommand matches words of commands, which often contain a URL with a password.
	isCommand = regexp.MustCompile(`\.(command|args|argv)\[\d+\]$`)
	// authScheme matches the scheme at the start of a header. It is not part of the secret.
	authScheme = regexp.MustCompile(`(?i)^(bearer|basic|digest|negotiate|token|bot|key|apikey|api-key|geniekey|deepl-auth-key)\s+`)
)

// IsSecretName reports whether secret:NAME is a valid reference for a name.
func IsSecretName(name string) bool { return secretName.MatchString("secret:" + name) }

// minSecret is the minimum length of a secret in bytes. Shorter ones would be masked everywhere.
const minSecret = 4

// longPart is the minimum length in bytes for a part of a text to be a secret by itself.
const longPart = 8

// holdable matches the settings that block only some jobs, not the daemon, if their secret is
// missing.
var holdable = regexp.MustCompile(`^(models\[\d+\]\.(api_key|base_url|headers\..+)|agents\[\d+\]\.grants\.secrets\[\d+\]|jobs\[\d+\]\.webhook\.secret|(agents|jobs)\[\d+\]\.executor\.env\..+|mcp\[\d+\]\.((env|headers)\..+|url|oauth\.client_secret)|notifications\[\d+\]\.(url|secret)|heartbeat_url)$`)

// lacks reports a missing secret: as a problem, or as a warning and in Config.Held if the caller
// wants to hold secrets.
func (d *Document) lacks(at config.Position, path, shown, name, problem, hint string) {
	p := d.Problem(at, shown, "%s", problem)
	p.Hint = hint
	if d.HoldSecrets && holdable.MatchString(path) {
		p.Warning = true
		if hint != "" {
			problem += "; " + hint
		}
		d.held = append(d.held, config.Held{Name: name, Path: path, At: at, Text: problem})
	}
}

// expand replaces ${NAME} by a variable, and secret:NAME or ${secret:NAME} by a secret. $${ is a
// plain ${. It returns false after a problem.
func (d *decoder) expand(n *node, path string, secret bool) (string, bool) {
	x := expansion{d, n, path, secret, false}
	text := n.text
	if m := shellVariable.FindStringSubmatch(text); m != nil && (secret || isSecretMap(path)) {
		hint := fmt.Sprintf("write %s: %s, or keep it with rouse secrets set NAME and write secret:NAME", LastKey(path), strings.Replace(text, "$"+m[1], "${"+m[1]+"}", 1))
		return x.bad(hint, "%q is not expanded", "$"+m[1]), false
	}

	if strings.Contains(text, "${") {
		text = variable.ReplaceAllStringFunc(text, x.reference)
	}
	// Check the prefix first, because the pattern is slow for many values.
	if strings.HasPrefix(n.text, "secret:") {
		if m := secretName.FindStringSubmatch(n.text); m != nil {
			text = x.fromStore(m[1])
		}
	}

	// A literal key in the file is a secret as well.
	if secret {
		d.writtenSecret(n, path, text, !x.failed)
	}
	// The rest of a URL is shown, so only the secrets inside it are registered.
	if !x.failed && isAddress(text) && (secretKey.MatchString(path) || isSecretMap(path) || isCommand.MatchString(path)) {
		d.urlSecret(n.at, path, text)
	}
	return text, !x.failed
}

// expansion expands one value.
type expansion struct {
	d      *decoder
	n      *node
	path   string
	secret bool // the value is a secret
	failed bool
}

func (x *expansion) bad(hint, format string, args ...any) string {
	x.failed = true
	x.d.Problem(x.n.at, x.path, format, args...).Hint = hint
	return ""
}

// writtenSecret registers a literal secret in the file. Next to references only long parts count,
// because short ones are names and separators.
func (d *decoder) writtenSecret(n *node, path, text string, expanded bool) {
	if text = strings.TrimSpace(text); expanded && text == strings.TrimSpace(n.text) {
		value := text[len(authScheme.FindString(text)):]
		if value == "" {
			return
		}
		d.secret(n.at, path, value)
		d.writtenKey(n, path, value)
		if i := strings.LastIndexAny(value, " \t\n"); len(value)-i > longPart && strings.Contains(path, ".headers.") {
			d.secret(n.at, path, value[i+1:]) // after an unknown scheme
		}
		return
	}
	if isAddress(n.text) || secretName.MatchString(strings.TrimSpace(n.text)) {
		return
	}
	if expanded {
		d.secret(n.at, path, text[len(authScheme.FindString(text)):])
	}
	for part := range strings.SplitSeq(reference.ReplaceAllStringFunc(n.text, func(string) string { return "\x00" }), "\x00") {
		part = strings.TrimSpace(part)
		if part = part[len(authScheme.FindString(part)):]; len(part) >= longPart {
			d.secret(n.at, path, part)
		}
	}
}

// fromStore returns a secret of the store. It refuses settings that a model sees or a run records.
func (x *expansion) fromStore(name string) string {
	if !x.secret && (strings.Contains(x.path, ".with.") || !secretKey.MatchString(x.path) && !isSecretMap(x.path)) {
		return x.bad("it can under api_key, base_url, url, http, headers, env of executors and of MCP servers, and engine.postgres; the calls of an agent use it by its placeholder, see grants.secrets", "a secret cannot stand here")
	}

	value, problem, hint := x.d.lookup(x.n.at, x.path, name)
	if problem != "" {
		x.failed = true
		x.d.lacks(x.n.at, x.path, x.path, name, problem, hint)
	}
	return value
}

// isSecretMap reports whether a path is inside a mapping in which every value may be a secret.
func isSecretMap(path string) bool {
	return strings.Contains(path, ".headers.") || strings.Contains(path, ".executor.env.") || serverEnv.MatchString(path)
}

// lookup returns a secret of the store and records its use. It returns a problem and a hint on
// failure.
func (d *Document) lookup(at config.Position, path, name string) (value, problem, hint string) {
	d.refs = append(d.refs, config.SecretRef{Name: name, Path: path, At: at})
	set, err := false, error(nil)
	if d.Secret != nil {
		value, set, err = d.Secret(name)
	}

	switch {
	case err != nil:
		return "", fmt.Sprintf("the secret %s cannot be read: %v", name, err), ""
	case !set:
		// Record it, so that the daemon can retry after `secrets set NAME`.
		d.unset = append(d.unset, name)
		return "", fmt.Sprintf("the secret %s is not set", name), "set it with: rouse secrets set " + name
	}

	d.secret(at, path, value)
	return value, "", ""
}

// reference returns the value of ${NAME} or ${secret:NAME}, and ${NAME} for $${NAME}.
func (x *expansion) reference(written string) string {
	if plain, ok := strings.CutPrefix(written, "$$"); ok {
		return "$" + plain
	}
	name := written[2 : len(written)-1]
	if name, ok := strings.CutPrefix(name, "secret:"); ok && secretName.MatchString("secret:"+name) {
		return x.fromStore(name)
	}
	if !variableName.MatchString(name) {
		return x.bad("${NAME} is a variable of the environment; write $${ for a plain ${", "${%s} is not understood", config.Short(name))
	}

	value := x.d.Getenv(name)
	if value == "" { // empty counts as not set, as for ROUSE_… variables
		return x.bad("write $${ for a plain ${", "the environment variable %s is not set", name)
	}
	if x.secret || secretKey.MatchString(x.path) || secretVariable.MatchString(name) || isSecretMap(x.path) {
		x.d.secret(x.n.at, x.path, value)
	}
	return value
}

func (d *Document) secret(at config.Position, path, value string) {
	if len(value) < minSecret {
		d.Problem(at, path, "a secret of fewer than %d characters cannot be kept out of the record", minSecret).Warning = true
		return
	}
	if value != "none" { // a placeholder for servers without a key
		d.secrets = append(d.secrets, value)
	}
}

// sorted returns the secrets, longest first, so that masking one leaves no part of another.
func (d *Document) sorted() []string {
	out := slices.Clone(d.secrets)
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	// The same value can occur several times.
	return slices.Compact(out)
}

// secretQuery matches query parameters of URLs that contain keys.
var secretQuery = regexp.MustCompile(`(?i)auth|key|secret|token|passw|credential|signature|^(sig|pwd|pass)$`)

// longToken is the minimum length in bytes for a user name in a URL to be treated as a token.
const longToken = 16

// isAddress reports whether a text may be a URL.
func isAddress(text string) bool { return strings.Contains(text, "://") }

// urlSecrets returns the secrets in a URL: password, token, and keys in the query.
func urlSecrets(text string) (out []string) {
	if !isAddress(text) {
		return nil
	}

	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if password, ok := u.User.Password(); ok {
		out = append(out, password)
	} else if name := u.User.Username(); len(name) >= longToken { // discord://TOKEN@ID, https://KEY@host
		out = append(out, name)
	}

	for name, values := range u.Query() {
		if secretQuery.MatchString(name) {
			out = append(out, values...)
		}
	}
	return out
}

// urlSecret registers the secrets of a URL.
func (d *decoder) urlSecret(at config.Position, path, text string) {
	for _, value := range urlSecrets(text) {
		if value != "" && !strings.Contains(value, "{{") {
			d.secret(at, path, value)
		}
	}
}
