#pragma once
// The parameters that chat and text completions share.
#include "gateway/openai/fields.h"
#include "gateway/openai/request.h"

namespace copse {

// Errors stay in `fields`; the value is meaningful only if there are none.
GenerateOptions parse_options(Fields& fields);
// The features of OpenAI's API and its relatives that copse lacks, where a request asks for them.
void refuse_unsupported(Fields& fields);

}  // namespace copse
