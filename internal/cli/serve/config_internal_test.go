package serve

import "testing"

// The file of last known limits names its store, and contains no secret.
func TestNameOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://ann:secret@cell-a:6379/2?prefix=p&password=secret&timeout=3s": "redis://cell-a:6379/2?prefix=p",
		"dynamodb://weir?region=eu-central-1":                                  "dynamodb://weir?region=eu-central-1",
		"dynamodb://weir?endpoint=http%3A%2F%2F127.0.0.1%3A8000":               "dynamodb://weir",
		"disk:/var/lib/weir": "disk:/var/lib/weir",
	} {
		if got := nameOf(address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}
