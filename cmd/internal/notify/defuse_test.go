package notify

import "testing"

// Chat programs neither open links nor mention people in the texts of agents and strangers. File
// names stay intact.
func TestLinksAreDefused(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"see https://evil.example/?q=1":    "see https[:]//evil[.]example/?q=1",
		"HTTP://EVIL.example":              "HTTP[:]//EVIL.example",
		"[x](javascript://y) slack://open": "[x](javascript[:]//y) slack[:]//open",
		"evil.example/leak?q=secret":       "evil[.]example/leak?q=secret",
		"secret.evil.com, evil.com.":       "secret.evil[.]com, evil[.]com.",
		"evil.com:8080/x and evil.com#x":   "evil[.]com:8080/x and evil[.]com#x",
		"bücher.de, пример.рф, 例え.テスト":     "bücher[.]de, пример[.]рф, 例え.テスト",
		"xn--e1afmkfd.xn--p1ai":            "xn--e1afmkfd[.]xn--p1ai",
		"evil。com evil．com evil｡com":       "evil[.]com evil[.]com evil[.]com",
		"10.0.0.7 and 10.0.0.7/x":          "10.0.0[.]7 and 10.0.0[.]7/x",
		"secret.evil.sh, evil.sh/secret":   "secret.evil[.]sh, evil[.]sh/secret",
		"evil.sh:80/secret":                "evil[.]sh:80/secret",
		"me@evil.com/x":                    "me@evil[.]com/x",

		"backup.sh failed, see bin/backup.sh:12": "backup.sh failed, see bin/backup.sh:12",
		"report.csv: 3 rows, 12:30, a@b.test":    "report.csv: 3 rows, 12:30, a@b.test",
		"main.go:7, notes.md, archive.tar.gz":    "main.go:7, notes.md, archive.tar.gz",
		"12 rows in done, 1.5 EUR, v1.24.3":      "12 rows in done, 1.5 EUR, v1.24.3",
		"write to me@example.com":                "write to me@example.com",
		"on 2026.11.28 it took 1.5/2.5 s":        "on 2026.11.28 it took 1.5/2.5 s",

		"@everyone and <!channel>":      "@\u200beveryone and <\u200b!channel>",
		"@all, @room: @**all** @bob":    "@\u200ball, @\u200broom: @\u200b**all** @\u200bbob",
		"<@123> <@&456> <#C1>":          "<\u200b@123> <\u200b@&456> <\u200b#C1>",
		"<!subteam^S1> <users/all>":     "<\u200b!subteam^S1> <\u200busers/all>",
		"(@here) \"@channel\" mail a@b": "(@\u200bhere) \"@\u200bchannel\" mail a@b",
	} {
		if got := defuse(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
