// Made by make_golden_hf.py with Hugging Face tokenizers 0.19.1; do not edit.
// clang-format off
#ifndef PL_GOLDEN_HF_H
#define PL_GOLDEN_HF_H

typedef struct golden_case {
    const char *text;
    int         n_bytes, n;
    int         ids[64];
    const char *decoded;
} golden_case;

typedef struct golden_tokenizer {
    const char *name;
    const char *head;     // the JSON members before "model"
    const char *settings; // members of "model" before the shared ones
    int         n_bos;
    golden_case cases[21];
} golden_tokenizer;

// "vocab" and "merges" of every model here, in pieces: C promises no longer literals than 4095.
static const char *const golden_model[] = {
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"<0x00>\":3,\"<0x01>\":4,\"<0x02>\":5,\"<0x03>\":6,\"<0x04>",
    "\":7,\"<0x05>\":8,\"<0x06>\":9,\"<0x07>\":10,\"<0x08>\":11,\"<0x09>\":12,\"<0x0A>\":13,\"<0x0B>\":14,\"<0x",
    "0C>\":15,\"<0x0D>\":16,\"<0x0E>\":17,\"<0x0F>\":18,\"<0x10>\":19,\"<0x11>\":20,\"<0x12>\":21,\"<0x13>\":22",
    ",\"<0x14>\":23,\"<0x15>\":24,\"<0x16>\":25,\"<0x17>\":26,\"<0x18>\":27,\"<0x19>\":28,\"<0x1A>\":29,\"<0x1B",
    ">\":30,\"<0x1C>\":31,\"<0x1D>\":32,\"<0x1E>\":33,\"<0x1F>\":34,\"<0x20>\":35,\"<0x21>\":36,\"<0x22>\":37,",
    "\"<0x23>\":38,\"<0x24>\":39,\"<0x25>\":40,\"<0x26>\":41,\"<0x27>\":42,\"<0x28>\":43,\"<0x29>\":44,\"<0x2A>",
    "\":45,\"<0x2B>\":46,\"<0x2C>\":47,\"<0x2D>\":48,\"<0x2E>\":49,\"<0x2F>\":50,\"<0x30>\":51,\"<0x31>\":52,",
    "\"<0x32>\":53,\"<0x33>\":54,\"<0x34>\":55,\"<0x35>\":56,\"<0x36>\":57,\"<0x37>\":58,\"<0x38>\":59,\"<0x39>",
    "\":60,\"<0x3A>\":61,\"<0x3B>\":62,\"<0x3C>\":63,\"<0x3D>\":64,\"<0x3E>\":65,\"<0x3F>\":66,\"<0x40>\":67,",
    "\"<0x41>\":68,\"<0x42>\":69,\"<0x43>\":70,\"<0x44>\":71,\"<0x45>\":72,\"<0x46>\":73,\"<0x47>\":74,\"<0x48>",
    "\":75,\"<0x49>\":76,\"<0x4A>\":77,\"<0x4B>\":78,\"<0x4C>\":79,\"<0x4D>\":80,\"<0x4E>\":81,\"<0x4F>\":82,",
    "\"<0x50>\":83,\"<0x51>\":84,\"<0x52>\":85,\"<0x53>\":86,\"<0x54>\":87,\"<0x55>\":88,\"<0x56>\":89,\"<0x57>",
    "\":90,\"<0x58>\":91,\"<0x59>\":92,\"<0x5A>\":93,\"<0x5B>\":94,\"<0x5C>\":95,\"<0x5D>\":96,\"<0x5E>\":97,",
    "\"<0x5F>\":98,\"<0x60>\":99,\"<0x61>\":100,\"<0x62>\":101,\"<0x63>\":102,\"<0x64>\":103,\"<0x65>\":104,",
    "\"<0x66>\":105,\"<0x67>\":106,\"<0x68>\":107,\"<0x69>\":108,\"<0x6A>\":109,\"<0x6B>\":110,\"<0x6C>\":111,",
    "\"<0x6D>\":112,\"<0x6E>\":113,\"<0x6F>\":114,\"<0x70>\":115,\"<0x71>\":116,\"<0x72>\":117,\"<0x73>\":118,",
    "\"<0x74>\":119,\"<0x75>\":120,\"<0x76>\":121,\"<0x77>\":122,\"<0x78>\":123,\"<0x79>\":124,\"<0x7A>\":125,",
    "\"<0x7B>\":126,\"<0x7C>\":127,\"<0x7D>\":128,\"<0x7E>\":129,\"<0x7F>\":130,\"<0x80>\":131,\"<0x81>\":132,",
    "\"<0x82>\":133,\"<0x83>\":134,\"<0x84>\":135,\"<0x85>\":136,\"<0x86>\":137,\"<0x87>\":138,\"<0x88>\":139,",
    "\"<0x89>\":140,\"<0x8A>\":141,\"<0x8B>\":142,\"<0x8C>\":143,\"<0x8D>\":144,\"<0x8E>\":145,\"<0x8F>\":146,",
    "\"<0x90>\":147,\"<0x91>\":148,\"<0x92>\":149,\"<0x93>\":150,\"<0x94>\":151,\"<0x95>\":152,\"<0x96>\":153,",
    "\"<0x97>\":154,\"<0x98>\":155,\"<0x99>\":156,\"<0x9A>\":157,\"<0x9B>\":158,\"<0x9C>\":159,\"<0x9D>\":160,",
    "\"<0x9E>\":161,\"<0x9F>\":162,\"<0xA0>\":163,\"<0xA1>\":164,\"<0xA2>\":165,\"<0xA3>\":166,\"<0xA4>\":167,",
    "\"<0xA5>\":168,\"<0xA6>\":169,\"<0xA7>\":170,\"<0xA8>\":171,\"<0xA9>\":172,\"<0xAA>\":173,\"<0xAB>\":174,",
    "\"<0xAC>\":175,\"<0xAD>\":176,\"<0xAE>\":177,\"<0xAF>\":178,\"<0xB0>\":179,\"<0xB1>\":180,\"<0xB2>\":181,",
    "\"<0xB3>\":182,\"<0xB4>\":183,\"<0xB5>\":184,\"<0xB6>\":185,\"<0xB7>\":186,\"<0xB8>\":187,\"<0xB9>\":188,",
    "\"<0xBA>\":189,\"<0xBB>\":190,\"<0xBC>\":191,\"<0xBD>\":192,\"<0xBE>\":193,\"<0xBF>\":194,\"<0xC0>\":195,",
    "\"<0xC1>\":196,\"<0xC2>\":197,\"<0xC3>\":198,\"<0xC4>\":199,\"<0xC5>\":200,\"<0xC6>\":201,\"<0xC7>\":202,",
    "\"<0xC8>\":203,\"<0xC9>\":204,\"<0xCA>\":205,\"<0xCB>\":206,\"<0xCC>\":207,\"<0xCD>\":208,\"<0xCE>\":209,",
    "\"<0xCF>\":210,\"<0xD0>\":211,\"<0xD1>\":212,\"<0xD2>\":213,\"<0xD3>\":214,\"<0xD4>\":215,\"<0xD5>\":216,",
    "\"<0xD6>\":217,\"<0xD7>\":218,\"<0xD8>\":219,\"<0xD9>\":220,\"<0xDA>\":221,\"<0xDB>\":222,\"<0xDC>\":223,",
    "\"<0xDD>\":224,\"<0xDE>\":225,\"<0xDF>\":226,\"<0xE0>\":227,\"<0xE1>\":228,\"<0xE2>\":229,\"<0xE3>\":230,",
    "\"<0xE4>\":231,\"<0xE5>\":232,\"<0xE6>\":233,\"<0xE7>\":234,\"<0xE8>\":235,\"<0xE9>\":236,\"<0xEA>\":237,",
    "\"<0xEB>\":238,\"<0xEC>\":239,\"<0xED>\":240,\"<0xEE>\":241,\"<0xEF>\":242,\"<0xF0>\":243,\"<0xF1>\":244,",
    "\"<0xF2>\":245,\"<0xF3>\":246,\"<0xF4>\":247,\"<0xF5>\":248,\"<0xF6>\":249,\"<0xF7>\":250,\"<0xF8>\":251,",
    "\"<0xF9>\":252,\"<0xFA>\":253,\"<0xFB>\":254,\"<0xFC>\":255,\"<0xFD>\":256,\"<0xFE>\":257,\"<0xFF>\":258,",
    "\"\342\226\201t\":259,\"he\":260,\"\342\226\201the\":261,\"in\":262,\"\342\226\201a\":263,\"\342\226\201s",
    "\":264,\"ain\":265,\"nd\":266,\"re\":267,\"\342\226\201o\":268,\"\342\226\201and\":269,\"at\":270,",
    "\"ll\":271,\"\342\226\201b\":272,\"ig\":273,\"ld\":274,\"ve\":275,\"\342\226\201c\":276,\"\342\226\201m",
    "\":277,\"\342\226\201r\":278,\"\342\226\201w\":279,\"all\":280,\"\342\226\201in\":281,\"\342\226\201on",
    "\":282,\"ai\":283,\"ay\":284,\"ht\":285,\"og\":286,\"oo\":287,\"ou\":288,\"pl\":289,\"\342\226\201f\":290,",
    "\"\342\226\201n\":291,\"aid\":292,\"ive\":293,\"ree\":294,\"\342\226\201ag\":295,\"\342\226\201he\":296,",
    "\"\342\226\201pl\":297,\"ight\":298,\"\342\226\201sat\":299,\"\342\226\201ball\":300,\"\342\226\201said",
    "\":301,\"\342\226\201again\":302,\"!\\\"\":303,\".'\":304,\"am\":305,\"an\":306,\"ed\":307,\"en\":308,",
    "\"hi\":309,\"ix\":310,\"lu\":311,\"ly\":312,\"or\":313,\"se\":314,\"un\":315,\"ut\":316,\"wo\":317,",
    "\"\342\226\201\\\"\":318,\"\342\226\201'\":319,\"\342\226\201d\":320,\"\342\226\201e\":321,\"\342\226\201h",
    "\":322,\"\342\226\201l\":323,\"She\":324,\"ame\":325,\"ays\":326,\"ere\":327,\"eve\":328,\"goo\":329,\"hen",
    "\":330,\"ine\":331,\"llo\":332,\"lue\":333,\"oon\":334,\"our\":335,\"red\":336,\"ren\":337,\"\342\226\201s",
    "m\":338,\"\342\226\201st\":339,\"\342\226\201th\":340,\"\342\226\201to\":341,\"\342\226\201tr\":342,\"ayed",
    "\":343,\"even\":344,\"good\":345,\"hild\":346,\"iver\":347,\"orld\":348,\"ouse\":349,\"\342\226\201\":350,",
    "\"e\":351,\"a\":352,\"n\":353,\"t\":354,\"h\":355,\"i\":356,\"o\":357,\"l\":358,\"d\":359,\"r\":360,",
    "\"s\":361,\"g\":362,\"m\":363,\"u\":364,\"b\":365,\"w\":366,\"c\":367,\"v\":368,\"y\":369,\"\\\"\":370,",
    "\"'\":371,\",\":372,\":\":373,\"f\":374,\"p\":375,\"!\":376,\".\":377,\"S\":378,\"x\":379},\"merges",
    "\":[\"\342\226\201 t\",\"h e\",\"\342\226\201t he\",\"\342\226\201th e\",\"i n\",\"\342\226\201 a",
    "\",\"\342\226\201 s\",\"ai n\",\"a in\",\"n d\",\"r e\",\"\342\226\201 o\",\"\342\226\201a nd\",\"a t",
    "\",\"l l\",\"\342\226\201 b\",\"i g\",\"l d\",\"v e\",\"\342\226\201 c\",\"\342\226\201 m",
    "\",\"\342\226\201 r\",\"\342\226\201 w\",\"a ll\",\"\342\226\201 in\",\"\342\226\201o n\",\"a i\",\"a y",
    "\",\"h t\",\"o g\",\"o o\",\"o u\",\"p l\",\"\342\226\201 f\",\"\342\226\201 n\",\"ai d\",\"i ve\",\"re e",
    "\",\"\342\226\201a g\",\"\342\226\201h e\",\"\342\226\201 he\",\"\342\226\201 pl\",\"ig ht",
    "\",\"\342\226\201s at\",\"\342\226\201b all\",\"\342\226\201s aid\",\"\342\226\201ag ain",
    "\",\"! \\\"\",\". '\",\"a m\",\"a n\",\"e d\",\"e n\",\"h i\",\"i x\",\"l u\",\"l y\",\"o r\",\"s e",
    "\",\"u n\",\"u t\",\"w o\",\"\342\226\201 \\\"\",\"\342\226\201 '\",\"\342\226\201 d\",\"\342\226\201 e",
    "\",\"\342\226\201 h\",\"\342\226\201 l\",\"S he\",\"am e\",\"ay s\",\"e re\",\"e ve\",\"g oo\",\"he n",
    "\",\"h en\",\"in e\",\"ll o\",\"lu e\",\"oo n\",\"ou r\",\"re d\",\"r ed\",\"re n\",\"r en",
    "\",\"\342\226\201s m\",\"\342\226\201s t\",\"\342\226\201t h\",\"\342\226\201t o\",\"\342\226\201t r",
    "\",\"ay ed\",\"eve n\",\"goo d\",\"hi ld\",\"ive r\",\"or ld\",\"ou se\"]",
};

static const golden_tokenizer golden_tokenizers[] = {
    {"prepend and replace",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers"
     "\":[{\"type\":\"Prepend\",\"prepend\":\"\342\226\201\"},{\"type\":\"Replace\",\"pattern\":{\"String"
     "\":\" \"},\"content\":\"\342\226\201\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateP"
     "rocessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 2,
       {350, 350},
       " "},
      {"   ", 3, 4,
       {350, 350, 350, 350},
       "   "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 4,
       {350, 261, 276, 270},
       " the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 4,
       {350, 350, 350, 261},
       "   the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 261, 2, 350, 276, 270, 381, 320, 286},
       "the  cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 8,
       {281, 382, 382, 361, 350, 261, 323, 286},
       "inthe  logthe  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 8,
       {0, 350, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"normalized specials",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
     "\"normalized\":true,\"special\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type"
     "\":\"Prepend\",\"prepend\":\"\342\226\201\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"conte"
     "nt\":\"\342\226\201\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"sin"
     "gle\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
     "\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"spec"
     "ial_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequenc"
     "e\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\342\226\201\"},\"content\":\" \"},{"
     "\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop"
     "\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 2,
       {350, 350},
       " "},
      {"   ", 3, 4,
       {350, 350, 350, 350},
       "   "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 4,
       {350, 261, 276, 270},
       " the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 4,
       {350, 350, 350, 261},
       "   the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 17,
       {1, 354, 260, 63, 50, 361, 65, 276, 270, 63, 363, 352, 361, 110, 65, 359, 286},
       "the</s> cat<mask>dog"},
      {"a <|end|>  b", 12, 10,
       {263, 350, 63, 127, 351, 266, 127, 65, 350, 272},
       "a <|end|>  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 20,
       {350, 379, 63, 127, 351, 266, 127, 65, 379, 63, 127, 351, 266, 127, 65, 350, 230, 131, 131, 369},
       "x<|end|>x<|end|> \343\200\200y"},
      {"the \302\240<mask>x", 13, 11,
       {261, 350, 197, 163, 63, 363, 352, 361, 110, 65, 379},
       "the \302\240<mask>x"},
      {"in the  log the  logs  the log", 30, 14,
       {281, 261, 350, 323, 286, 261, 350, 323, 286, 361, 350, 261, 323, 286},
       "in the  log the  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 10,
       {0, 198, 172, 233, 154, 168, 63, 315, 110, 65},
       "\303\251\346\227\245<unk>"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 20,
       {350, 63, 127, 351, 266, 127, 65, 63, 363, 352, 361, 110, 65, 63, 127, 351, 266, 127, 65, 379},
       "<|end|><mask><|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace first whole",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"first\",\"split\":false},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 354, 260, 2, 276, 270, 381, 359, 286},
       "the catdog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 365},
       "a b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 5,
       {350, 379, 383, 380, 369},
       "x<|end|>xy"},
      {"the \302\240<mask>x", 13, 3,
       {261, 381, 379},
       "thex"},
      {"in the  log the  logs  the log", 30, 10,
       {281, 350, 382, 350, 382, 361, 350, 261, 323, 286},
       "in the  log the  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 7,
       {0, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace first split",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"first\",\"split\":true},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 354, 260, 2, 276, 270, 381, 359, 286},
       "the catdog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 365},
       "a b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 5,
       {350, 379, 383, 380, 369},
       "x<|end|>xy"},
      {"the \302\240<mask>x", 13, 3,
       {261, 381, 379},
       "thex"},
      {"in the  log the  logs  the log", 30, 10,
       {281, 350, 382, 350, 382, 361, 350, 261, 323, 286},
       "in the  log the  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 7,
       {0, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace always whole",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"always\",\"split\":false},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 8,
       {1, 261, 2, 276, 270, 381, 320, 286},
       "the cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 10,
       {281, 350, 382, 350, 382, 264, 350, 261, 323, 286},
       "in the  log the  log s  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 8,
       {0, 350, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace always split",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"always\",\"split\":true},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 8,
       {1, 261, 2, 276, 270, 381, 320, 286},
       "the cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 10,
       {281, 350, 382, 350, 382, 264, 350, 261, 323, 286},
       "in the  log the  log s  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 8,
       {0, 350, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace never whole",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"never\",\"split\":false},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 1,
       {13},
       "\012"},
      {"the cat sat", 11, 5,
       {354, 260, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 6,
       {354, 260, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 19,
       {87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {353, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 354, 260, 2, 276, 270, 381, 359, 286},
       "the catdog"},
      {"a <|end|>  b", 12, 4,
       {352, 350, 380, 365},
       "a b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 4,
       {379, 383, 380, 369},
       "x<|end|>xy"},
      {"the \302\240<mask>x", 13, 4,
       {354, 260, 381, 379},
       "thex"},
      {"in the  log the  logs  the log", 30, 10,
       {262, 350, 382, 350, 382, 361, 350, 261, 323, 286},
       "in the  log the  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 7,
       {0, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 14,
       {352, 362, 265, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 12,
       {63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 17,
       {354, 260, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"metaspace never split",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"never\",\"split\":true},\"post_processor"
     "\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequ"
     "ence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 1,
       {13},
       "\012"},
      {"the cat sat", 11, 5,
       {354, 260, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 6,
       {354, 260, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 19,
       {87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {353, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 354, 260, 2, 276, 270, 381, 359, 286},
       "the catdog"},
      {"a <|end|>  b", 12, 4,
       {352, 350, 380, 365},
       "a b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 4,
       {379, 383, 380, 369},
       "x<|end|>xy"},
      {"the \302\240<mask>x", 13, 4,
       {354, 260, 381, 379},
       "thex"},
      {"in the  log the  logs  the log", 30, 10,
       {262, 350, 382, 350, 382, 361, 350, 261, 323, 286},
       "in the  log the  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 7,
       {0, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 14,
       {352, 362, 265, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 12,
       {63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 17,
       {354, 260, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"unknown, fused",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers"
     "\":[{\"type\":\"Prepend\",\"prepend\":\"\342\226\201\"},{\"type\":\"Replace\",\"pattern\":{\"String"
     "\":\" \"},\"content\":\"\342\226\201\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateP"
     "rocessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":false,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 2,
       {350, 350},
       " "},
      {"   ", 3, 4,
       {350, 350, 350, 350},
       "   "},
      {"\012", 1, 2,
       {350, 0},
       ""},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 4,
       {350, 261, 276, 270},
       " the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 18,
       {350, 0, 260, 350, 0, 286, 373, 350, 0, 350, 0, 350, 0, 350, 0, 350, 0, 376},
       "he og:     !"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 13,
       {291, 352, 0, 275, 276, 352, 374, 0, 372, 350, 0, 350, 0},
       "nave caf,  "},
      {"\342\226\201\342\226\201 the", 10, 4,
       {350, 350, 350, 261},
       "   the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 261, 2, 350, 276, 270, 381, 320, 286},
       "the  cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 8,
       {281, 382, 382, 361, 350, 261, 323, 286},
       "inthe  logthe  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 4,
       {0, 350, 0, 0},
       ""},
      {"again and again\012\011and the rain\015\012", 31, 10,
       {302, 269, 302, 0, 352, 266, 261, 278, 265, 0},
       "again and againand the rain"},
      {"<0x0A><0xE6>", 12, 6,
       {350, 0, 379, 0, 379, 0},
       "xx"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"unknown, one by one",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers"
     "\":[{\"type\":\"Prepend\",\"prepend\":\"\342\226\201\"},{\"type\":\"Replace\",\"pattern\":{\"String"
     "\":\" \"},\"content\":\"\342\226\201\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateP"
     "rocessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":false,\"fuse_unk\":false,\"unk_token\":\"<unk>\",\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 2,
       {350, 350},
       " "},
      {"   ", 3, 4,
       {350, 350, 350, 350},
       "   "},
      {"\012", 1, 2,
       {350, 0},
       ""},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 4,
       {350, 261, 276, 270},
       " the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 0, 260, 350, 0, 286, 373, 350, 0, 0, 350, 0, 350, 0, 350, 0, 350, 0, 0, 376},
       "he og:     !"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 14,
       {291, 352, 0, 275, 276, 352, 374, 0, 372, 350, 0, 0, 350, 0},
       "nave caf,  "},
      {"\342\226\201\342\226\201 the", 10, 4,
       {350, 350, 350, 261},
       "   the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 261, 2, 350, 276, 270, 381, 320, 286},
       "the  cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 8,
       {281, 382, 382, 361, 350, 261, 323, 286},
       "inthe  logthe  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 5,
       {0, 350, 0, 0, 0},
       ""},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 0, 0, 352, 266, 261, 278, 265, 0, 0},
       "again and againand the rain"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 0, 0, 379, 0, 0, 0, 0, 0, 379, 0, 0, 0},
       "xx"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"unknown vanishes",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers"
     "\":[{\"type\":\"Prepend\",\"prepend\":\"\342\226\201\"},{\"type\":\"Replace\",\"pattern\":{\"String"
     "\":\" \"},\"content\":\"\342\226\201\"}]},\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateP"
     "rocessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence"
     "\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens"
     "\":[\"<s>\"]}}},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Str"
     "ing\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type"
     "\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":false,\"fuse_unk\":true,\"unk_token\":null,\"ignore_merges\":false",
     1, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 2,
       {350, 350},
       " "},
      {"   ", 3, 4,
       {350, 350, 350, 350},
       "   "},
      {"\012", 1, 1,
       {350},
       ""},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 4,
       {350, 261, 276, 270},
       " the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 10,
       {296, 268, 362, 373, 350, 350, 350, 350, 350, 376},
       "he og:     !"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 9,
       {291, 352, 275, 276, 352, 374, 372, 350, 350},
       "nave caf,  "},
      {"\342\226\201\342\226\201 the", 10, 4,
       {350, 350, 350, 261},
       "   the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 9,
       {1, 261, 2, 350, 276, 270, 381, 320, 286},
       "the  cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 8,
       {281, 382, 382, 361, 350, 261, 323, 286},
       "inthe  logthe  logs  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 3,
       {0, 350, 0},
       ""},
      {"again and again\012\011and the rain\015\012", 31, 8,
       {302, 269, 302, 352, 266, 261, 278, 265},
       "again and againand the rain"},
      {"<0x0A><0xE6>", 12, 3,
       {350, 379, 379},
       "xx"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
    {"ignore_merges, no BOS",
     "\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":0,\"content\":\"<unk>"
     "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{"
     "\"id\":1,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
     ",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false"
     ",\"normalized\":false,\"special\":true},{\"id\":380,\"content\":\"<|end|>\",\"single_word\":false,\"lstri"
     "p\":false,\"rstrip\":true,\"normalized\":false,\"special\":true},{\"id\":381,\"content\":\"<mask>\",\"sin"
     "gle_word\":false,\"lstrip\":true,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":382,"
     "\"content\":\"the  log\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":true,"
     "\"special\":false},{\"id\":383,\"content\":\"<|end|>x\",\"single_word\":false,\"lstrip\":false,\"rstrip"
     "\":false,\"normalized\":false,\"special\":false}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metas"
     "pace\",\"replacement\":\"\342\226\201\",\"prepend_scheme\":\"always\",\"split\":true},\"post_processor"
     "\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String"
     "\":\"\342\226\201\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip"
     "\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     "\"type\":\"BPE\",\"dropout\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"byte_f"
     "allback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"ignore_merges\":true",
     0, {
      {"", 0, 0,
       {0},
       ""},
      {" ", 1, 1,
       {350},
       ""},
      {"   ", 3, 3,
       {350, 350, 350},
       "  "},
      {"\012", 1, 2,
       {350, 13},
       "\012"},
      {"the cat sat", 11, 4,
       {261, 276, 270, 299},
       "the cat sat"},
      {" the cat", 8, 3,
       {261, 276, 270},
       "the cat"},
      {"the  cat ", 9, 5,
       {261, 350, 276, 270, 350},
       "the  cat "},
      {"The Dog: 12 + 7 = 19!", 21, 20,
       {350, 87, 260, 350, 71, 286, 373, 350, 52, 53, 350, 46, 350, 58, 350, 64, 350, 52, 60, 376},
       "The Dog: 12 + 7 = 19!"},
      {"na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200", 25, 23,
       {291, 352, 198, 178, 275, 276, 352, 374, 198, 172, 372, 350, 233, 154, 168, 233, 159, 175, 350, 243, 162,
        155, 131},
       "na\303\257ve caf\303\251, \346\227\245\346\234\254 \360\237\230\200"},
      {"\342\226\201\342\226\201 the", 10, 3,
       {350, 350, 261},
       "  the"},
      {"</s>", 4, 1,
       {2},
       ""},
      {"<s>the</s> cat<mask>dog", 23, 8,
       {1, 261, 2, 276, 270, 381, 320, 286},
       "the cat dog"},
      {"a <|end|>  b", 12, 4,
       {263, 350, 380, 272},
       "a  b"},
      {"x<|end|>x<|end|> \343\200\200y", 21, 6,
       {350, 379, 383, 380, 350, 369},
       "x<|end|>x y"},
      {"the \302\240<mask>x", 13, 4,
       {261, 381, 350, 379},
       "the x"},
      {"in the  log the  logs  the log", 30, 10,
       {281, 350, 382, 350, 382, 264, 350, 261, 323, 286},
       "in the  log the  log s  the log"},
      {"<unk>\303\251\346\227\245<unk>", 15, 8,
       {0, 350, 198, 172, 233, 154, 168, 0},
       "\303\251\346\227\245"},
      {"again and again\012\011and the rain\015\012", 31, 12,
       {302, 269, 302, 13, 12, 352, 266, 261, 278, 265, 16, 13},
       "again and again\012\011and the rain\015\012"},
      {"<0x0A><0xE6>", 12, 13,
       {350, 63, 51, 379, 51, 68, 65, 63, 51, 379, 72, 57, 65},
       "<0x0A><0xE6>"},
      {"<|end|><mask><|end|>x", 21, 3,
       {380, 381, 383},
       "<|end|>x"},
      {"thethethe onon aaaa  mainly", 27, 16,
       {261, 354, 260, 354, 260, 282, 357, 353, 263, 352, 352, 352, 350, 277, 265, 312},
       "thethethe onon aaaa  mainly"},
     }},
};

#endif
