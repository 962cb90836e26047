package executor

import (
	"context"
	"regexp"
	"testing"
	"time"
)

// TestLimits checks the meaning of sentences of real programs.
func TestLimits(t *testing.T) {
	t.Parallel()
	newYork, err := time.LoadLocation("America/New_York") // zone of the program, where it is 15:00
	if err != nil {
		t.Fatal(err)
	}
	own := []Limit{{Match: regexp.MustCompile(`team is used up`), Wait: 90 * time.Minute}, {Match: regexp.MustCompile(`come back`)}}
	for said, want := range map[string]string{
		// Claude Code.
		"You've hit your session limit · resets 12:50am (Asia/Shanghai)":                           "2026-11-26T01:00:00Z", // a session lasts five hours; the time would be 16:50
		"You've hit your session limit · resets 6:10am (Asia/Shanghai)":                            "2026-11-25T22:10:00Z",
		"You've hit your session limit · resets 11:20pm (Europe/Budapest)":                         "2026-11-25T22:20:00Z",
		"You've hit your session limit · resets 1:20am (Asia/Calcutta)":                            "limited", // ten minutes ago
		"You've hit your 5-hour limit · resets 12:06am (UTC)":                                      "2026-11-26T00:06:00Z",
		"5-hour limit reached ∙ resets 6pm":                                                        "2026-11-25T23:00:00Z",
		"Session limit reached ∙ resets 12am":                                                      "2026-11-26T01:00:00Z",
		"You've hit your limit · resets 10pm (Europe/Berlin)":                                      "2026-11-25T21:00:00Z",
		"You've hit your weekly limit · resets Dec 1 at 9am (Europe/Berlin)":                       "2026-12-01T08:00:00Z",
		"Weekly limit reached ∙ resets Nov 28, 9:30am":                                             "2026-11-28T14:30:00Z",
		"Opus weekly limit reached ∙ resets Nov 30 at 5pm":                                         "2026-11-30T22:00:00Z",
		"You've hit your Opus limit · resets tomorrow at 3pm (UTC)":                                "2026-11-26T15:00:00Z",
		"You've hit your weekly limit · resets Dec 20 at 9am (UTC)":                                "2026-12-02T20:00:00Z", // at most a week
		"You're out of extra usage · resets 7pm (America/New_York)":                                "2026-11-26T00:00:00Z",
		"Claude usage limit reached. Your limit will reset at 11pm (Europe/Berlin).":               "2026-11-25T22:00:00Z",
		"Claude AI usage limit reached|1795648800":                                                 "2026-11-25T23:20:00Z",
		"Claude AI usage limit reached|1760004000":                                                 "limited", // in the past
		"Claude AI usage limit reached|9999999999":                                                 "limited", // too far in the future
		"API Error: Server is temporarily limiting requests (not your usage limit) · Rate limited": "limited",
		"API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}":            "limited",
		"Credit balance is too low":                                                                "",
		"Not logged in · Please run /login":                                                        "",
		"API Error: 500 Internal server error":                                                     "",
		"API Error: The model's context window limit is 200000 tokens · resets 3pm":                "",
		// Codex.
		"You’ve hit your usage limit. Upgrade to Pro (https://x) or try again at 12:09 PM.":     "2026-11-26T17:09:00Z",
		"You’ve hit your usage limit. Visit https://x or try again at 5:30\u202fPM.":            "2026-11-25T22:30:00Z",
		"You've hit your usage limit. Upgrade to Plus, or try again at Nov 29th, 2026 8:19 PM.": "2026-11-30T01:19:00Z",
		"You've hit your usage limit. try again at Nov 29, 2026, 7:38 AM":                       "2026-11-29T12:38:00Z",
		"You've hit your usage limit. Upgrade to Plus, or try again at Dec 25th, 2026 8:19 PM.": "2026-12-03T20:00:00Z", // at most eight days
		"You've hit your usage limit. try again at Aug 20, 2026, 7:38 AM":                       "limited",
		"You've hit your usage limit. Try again in 4 days 20 hours 9 minutes.":                  "2026-11-30T16:09:00Z",
		"You've hit your usage limit. Upgrade to Pro, or wait for limits to reset (every 5h).":  "limited",
		"We’re currently experiencing high demand, which may cause temporary errors.":           "limited",
		"exceeded retry limit, last status: 429 Too Many Requests":                              "limited",
		"Quota exceeded. Check your plan and billing details.":                                  "",
		"Rate limit reached for gpt-5 on tokens per min. Please try again in 1m26.4s.":          "2026-11-25T20:01:26Z",
		"unexpected status 401 Unauthorized":                                                    "",
		// Gemini CLI, Qwen Code.
		"[API Error: You have exhausted your daily quota on this model.]":                                     "2026-11-26T08:00:00Z", // midnight in California
		"You have exhausted your capacity on this model. Your quota will reset after 8h44m7s.":                "2026-11-26T04:44:07Z",
		"You exceeded your current quota, please check your plan and billing details. Please retry in 36.5s.": "2026-11-25T20:00:36Z",
		"No capacity available for model gemini-3-flash-preview on the server":                                "limited",
		"Resource has been exhausted (e.g. check quota).":                                                     "limited",
		// Invalid times.
		"usage limit, try again at 99:99":                  "limited",
		"usage limit, try again at 13:00 PM":               "limited",
		"usage limit, try again in 99999999999999999 days": "limited",
		"usage limit, resets 3":                            "limited",
		"usage limit, resets 10pm (Mars/Olympus)":          "2026-11-26T03:00:00Z", // zone of the program
		"usage limit, resets at 2026-11-26T08:00:00+09:00": "2026-11-25T23:00:00Z",
		"usage limit, try again at 23:15":                  "2026-11-26T04:15:00Z",
		// Configured sentences.
		"The quota of the team is used up": "2026-11-25T21:30:00Z",
		"Please come back; resets 4pm":     "2026-11-25T21:00:00Z",
		"The tests failed.":                "",
	} {
		until, limited := limitOf(said, own, now, newYork)
		got := map[bool]string{true: "limited"}[limited]
		if !until.IsZero() {
			got = until.UTC().Truncate(time.Second).Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", said, got, want)
		}
	}
}

// TestLimitsAcrossDST checks that a stated time of day has the UTC offset of its day, even if the
// clock changes before it.
func TestLimitsAcrossDST(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ now, said, want string }{
		"before summer":         {"2026-03-28T22:00:00Z", "usage limit, resets 5am (Europe/Berlin)", "2026-03-29T03:00:00Z"},
		"an hour that is not":   {"2026-03-28T22:00:00Z", "usage limit, resets 2:30am (Europe/Berlin)", "2026-03-29T01:30:00Z"},
		"before winter":         {"2026-10-24T22:00:00Z", "usage limit, resets 5am (Europe/Berlin)", "2026-10-25T04:00:00Z"},
		"an hour that is twice": {"2026-10-24T22:00:00Z", "usage limit, resets 2:30am (Europe/Berlin)", "2026-10-25T01:30:00Z"},
		"over a new year":       {"2026-12-31T12:00:00Z", "weekly limit, resets Jan 2 at 9am (UTC)", "2027-01-02T09:00:00Z"},
		"in the old year":       {"2027-01-01T12:00:00Z", "weekly limit, resets Dec 31 at 9am (UTC)", "0001-01-01T00:00:00Z"},
		"over midnight":         {"2026-11-25T23:30:00Z", "usage limit, resets 12:50am (UTC)", "2026-11-26T00:50:00Z"},
		"just reached":          {"2026-11-25T00:00:30Z", "usage limit, resets 12am (UTC)", "0001-01-01T00:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		if until, limited := limitOf(c.said, nil, at, time.UTC); !limited || until.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s: %s (%t), want %s", name, until.UTC(), limited, c.want)
		}
	}
}

// TestZoneOf checks that a program states times in the zone of its environment.
func TestZoneOf(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{"TZ=Asia/Tokyo": "Asia/Tokyo", "TZ=:Asia/Tokyo": "Asia/Tokyo", "TZ=nowhere": time.Local.String(), "A=b": time.Local.String()} {
		if got := zoneOf([]string{"X=y", env}); got.String() != want {
			t.Errorf("%s: %s", env, got)
		}
	}
}

// TestSyntheticAnswer checks that a limit that Claude Code prints as an answer of its model is not
// a turn.
func TestSyntheticAnswer(t *testing.T) {
	t.Parallel()
	r := read([]byte(`{"type":"system","subtype":"init","session_id":"s","model":"claude-sonnet-5"}
{"type":"assistant","message":{"id":"1","model":"<synthetic>","content":[{"type":"text","text":"You've hit your session limit"}],"usage":{"input_tokens":0,"output_tokens":0}}}
{"type":"result","subtype":"success","is_error":true,"result":"You've hit your session limit · resets 10pm (UTC)","total_cost_usd":0}
`), 100, nil)
	if r.Turns != 0 || r.Model != "claude-sonnet-5" || !r.Unavailable || !r.RetryAt.Equal(now.Add(2*time.Hour)) {
		t.Errorf("%+v", r)
	}
}

// TestLastWords checks that a program without JSON reports a limit as the only line of its output,
// or as the last line of its error output.
func TestLastWords(t *testing.T) {
	t.Parallel()
	const limit = "You've hit your usage limit. Try again in 2 hours."
	for name, c := range map[string]struct {
		json           bool
		stdout, stderr string
		want           bool
	}{
		"text":             {false, limit + "\n", "", true},
		"text of errors":   {false, "", "a banner\nERROR: " + limit + "\n", true},
		"after its work":   {false, "I changed a file.\n" + limit, "", false},
		"JSON is expected": {true, "", limit, true},
		"JSON":             {true, `{"type":"system","subtype":"init"}`, limit, false},
		"another failure":  {false, "", "no such file", false},
	} {
		r := NewReader(context.Background(), c.json, nil, nil)
		r.now = func() time.Time { return now }
		_, _ = r.Write([]byte(c.stdout))
		r.Close()
		r.noteLastWords(c.stdout, c.stderr)
		if r.Unavailable != c.want || !r.RetryAt.IsZero() != c.want {
			t.Errorf("%s: %t %s", name, r.Unavailable, r.RetryAt)
		}
	}
}
