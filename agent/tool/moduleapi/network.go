package moduleapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/web"
	"rouse/internal/domain"
)

var fetchSpec = tool.Spec{
	Name: "host_network_fetch", Description: "Sends a request of a module.", Effect: domain.EffectExternal, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere,
	Args: reflect.TypeFor[web.RequestArgs](), Requires: tool.RequiresModule, ReadsOnly: onlyReads, SummaryArg: "url", Timeout: 45 * time.Second,
}

func onlyReads(raw json.RawMessage) bool {
	var a web.RequestArgs
	return json.Unmarshal(raw, &a) == nil && a.Reads()
}

func (h *Host) fetch(s tool.Spec) (tool.Tool, error) {
	s.Access = tool.AccessOf(h.requests.Need)
	return tool.Define(s, func(ctx context.Context, _ tool.Invocation, a web.RequestArgs) (tool.Envelope, error) {
		return h.requests.Send(ctx, a)
	})
}

// outsideRules returns the reason why the manifest's rules do not cover a request, or "".
func (h *Host) outsideRules(method, url string) string {
	for _, r := range h.o.Manifest.Sandbox.NetworkRules {
		if (len(r.Methods) == 0 && method == "GET" || slices.Contains(r.Methods, method)) && web.MatchesPattern(r.URLPattern, url) {
			return ""
		}
	}
	return fmt.Sprintf("%s %s is covered by none of the networkRules of the skill's manifest%s", method, url, web.AmbiguousPath(url))
}

// fetchInit is the second argument of fetch.
type fetchInit struct {
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    *string           `json:"body"`
}

// fetchRequest translates the arguments of fetch to those of the tool.
func (h *Host) fetchRequest(c Call, named map[string]json.RawMessage) (Call, error) {
	var a web.RequestArgs
	if err := json.Unmarshal(named["url"], &a.URL); err != nil {
		return c, argumentError("the URL is a text: fetch(url, {method, headers, body})")
	}

	if raw := named["init"]; len(raw) > 0 {
		var init fetchInit
		if err := json.Unmarshal(raw, &init); err != nil {
			return c, argumentError("fetch takes {method, headers, body}, with texts as headers and a text as body: " + err.Error())
		}
		a.Method, a.Headers = init.Method, init.Headers
		if init.Body != nil {
			a.Body = *init.Body
		}
	}
	var err error
	c.Args, err = json.Marshal(a)
	return c, err
}
