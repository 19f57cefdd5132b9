package cloud

// Prefixes of the objects in the archive bucket. Lambda determines the second.
const (
	auditPrefix   = "audit/"
	failurePrefix = "aws/lambda/"
)

// reads reports whether any function reads the stream, and so can fail to.
func (p *Params) reads() bool { return !p.NoAggregator || p.ConfigFlow }

// archive adds a bucket for expired audit events, and for stream records that a function failed on.
func (p *Params) archive(s *stack) {
	if !p.reads() {
		return
	}
	encryption := obj{"SSEAlgorithm": "AES256"}
	if p.KMSKey != "" {
		encryption = obj{"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": p.KMSKey}
	}
	s.add("ArchiveBucket", "AWS::S3::Bucket", obj{
		"BucketEncryption":               obj{"ServerSideEncryptionConfiguration": list{obj{"ServerSideEncryptionByDefault": encryption, "BucketKeyEnabled": p.KMSKey != ""}}},
		"OwnershipControls":              obj{"Rules": list{obj{"ObjectOwnership": "BucketOwnerEnforced"}}},
		"PublicAccessBlockConfiguration": obj{"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true, "RestrictPublicBuckets": true},
		"VersioningConfiguration":        obj{"Status": "Enabled"},
		"LifecycleConfiguration":         obj{"Rules": p.lifecycle()},
	}).keep(!p.NoRetain)
	s.add("ArchiveBucketPolicy", "AWS::S3::BucketPolicy", obj{
		"Bucket": ref("ArchiveBucket"),
		"PolicyDocument": document(obj{
			"Sid": "TLSOnly", "Effect": "Deny", "Principal": obj{"AWS": "*"}, "Action": "s3:*",
			"Resource":  list{att{"ArchiveBucket", "Arn"}, sub("${ArchiveBucket.Arn}/*")},
			"Condition": obj{"Bool": obj{"aws:SecureTransport": "false"}},
		}),
	}).keep(!p.NoRetain)
	s.out("ArchiveBucket", "Expired audit events, and records that functions failed on", ref("ArchiveBucket"))
}

func (p *Params) lifecycle() list {
	rules := list{obj{
		"Id": "leftovers", "Status": "Enabled",
		"AbortIncompleteMultipartUpload": obj{"DaysAfterInitiation": 7},
		"NoncurrentVersionExpiration":    obj{"NoncurrentDays": 90},
	}}
	audit := obj{"Id": "audit", "Status": "Enabled", "Prefix": auditPrefix}
	if p.ArchiveColdDays > 0 {
		audit["Transitions"] = list{obj{"StorageClass": "GLACIER_IR", "TransitionInDays": p.ArchiveColdDays}}
	}
	if p.ArchiveDays > 0 {
		audit["ExpirationInDays"] = p.ArchiveDays
	}
	if len(audit) > 3 {
		rules = append(rules, audit)
	}
	return rules
}
