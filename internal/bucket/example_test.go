package bucket_test

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func ExampleLimit_Take() {
	limit, err := bucket.New(bucket.Config{Hits: 2, Unit: bucket.Second})
	if err != nil {
		panic(err) // the numbers above are valid
	}
	var s bucket.State // absent, so full
	now := int64(1_900_000_000_000_000)
	for range 3 {
		o := limit.Take(&s, now, bucket.Ask{Hits: 1, Mode: bucket.Fit})
		fmt.Println(o.Allowed, o.Remaining, bucket.Wait(o.RetryAfter))
	}
	o := limit.Take(&s, now+500_000, bucket.Ask{Hits: 1, Mode: bucket.Fit})
	fmt.Println(o.Allowed, o.Remaining)
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 500ms
	// true 0
}
